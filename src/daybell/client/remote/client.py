"""A client that talks to a server instead of a database."""

from __future__ import annotations

from typing import Self, TypeAlias

from daybell.client.facade import Client
from daybell.client.remote.access import Access
from daybell.client.remote.bulk import Bulk
from daybell.client.remote.events import Events
from daybell.client.remote.executions import Executions
from daybell.client.remote.jobs import Jobs
from daybell.client.remote.logs import Logs
from daybell.client.remote.overview import Overviews
from daybell.client.remote.secrets import Secrets
from daybell.client.remote.templates import Templates
from daybell.client.remote.transport import Transport
from daybell.core.limits import check_name


class RemoteClient(Jobs, Templates, Executions, Events, Overviews, Bulk, Logs, Access, Secrets):
    """A tenant's jobs, executions, queues and workers, by way of a `daybell server`.

    It has the verbs of `Client` that a server offers, with the same answers and errors. The key
    decides whose jobs these are; a superadmin's may name another tenant. Entering it connects to
    nobody yet; leaving it closes the connections that were made.
    """

    def __init__(self, url: str, *, key: str | None = None, tenant: str | None = None) -> None:
        self.tenant = None if tenant is None else check_name(tenant, what="tenant")
        self.transport = Transport(url, key=key, tenant=self.tenant)

    @property
    def place(self) -> str:
        """The server, for messages."""
        return self.transport.place

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()


AnyClient: TypeAlias = Client | RemoteClient
