"""Requests that may come twice."""

from __future__ import annotations

from daybell.core.idempotency import NewRequest, Request
from daybell.store.protocol import Store


class Idempotency:
    """The verbs of `Client` for requests under a key that their sender made."""

    store: Store
    tenant: str

    async def begin_request(self, request: NewRequest) -> Request:
        """Remember a request, or answer what is known of an earlier one with its key. A key is 1
        to 255 printable ASCII characters.
        """
        return await self.store.begin_request(self.tenant, request)

    async def answer_request(self, key: str, *, status: int, answer: str) -> None:
        """Keep the answer to a request. The first one stays."""
        await self.store.answer_request(self.tenant, key, status=status, answer=answer)
