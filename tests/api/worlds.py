"""A whole API in this process, behind its guard, with two tenants and a key of every kind."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import httpx

from daybell.api import create_api
from daybell.api.auth import Authenticator
from daybell.api.caller import ApiOptions
from daybell.api.guard import Guard
from daybell.client import Client
from daybell.client.sealing import new_key
from daybell.core.access import Role
from daybell.core.alerts.incidents import MoveKind
from daybell.core.worker import NewWorker
from daybell.engine.loop import ManualClock
from daybell.store.sqlite import SqliteStore
from tests.api.requests import document
from tests.builders import an_incident_move


class World:
    """What there is to be asked for, and those who ask."""

    def __init__(self, store: SqliteStore, *, open_tenant: str | None = None) -> None:
        self.clock = ManualClock()
        self.client = Client(store, secrets_key=new_key())
        self.other = self.client.for_tenant("other")
        options = ApiOptions(open_tenant=open_tenant)
        self.keeper = Authenticator(self.client, options, monotonic=self.clock.monotonic)
        self.app = create_api(self.client, options=options, gatekeeper=self.keeper)
        self.guard = Guard(self.app, admit=self.keeper.admit, told=self.keeper.hear)
        self.keys: dict[str, str] = {}  # tokens by the name of their role
        self.foreign = ""  # an admin's of the other tenant
        self.ids: dict[str, str] = {}  # of what the default tenant has

    async def fill(self) -> None:
        await self.client.define("resize", queue="images")
        execution = await self.client.enqueue("resize", {"width": 1})
        await self.client.add_tenant("other")
        worker = NewWorker(id=UUID(int=1), name="one", queues=("images",))
        await self.client.store.queue.register(self.client.tenant, worker, lease=60)
        for role in Role:
            self.keys[role] = (await self.client.create_key(f"a {role}", role=role)).token
        self.foreign = (await self.other.create_key("an admin", role=Role.ADMIN)).token
        key = await self.client.create_key("unused", role=Role.VIEWER)
        await self.client.set_secret("TOKEN", "some value")
        await self.client.set_template({"name": "backup", "job": {"command": "true"}})
        await self.client.set_alert({"name": "letters", "on": "dead_letter"})
        await self.client.hold_export("warehouse", "2026-11-01T00:00:00Z")
        await self.client.create_subscription({"name": "hooks", "url": "http://127.0.0.1:1/a"})
        move = an_incident_move(MoveKind.OPEN)
        await self.client.store.admin.move_incident(self.client.tenant, move)
        self.ids = {
            "job": "resize",
            "execution": str(execution.id),
            "key": str(key.key_id),
            "worker": str(worker.id),
            "secret": "TOKEN",
            "template": "backup",
            "alert": "letters",
            "subscription": "hooks",
            "export": "warehouse",
            "incident": str(move.id),
        }

    def operations(self) -> list[tuple[str, str, str, dict[str, Any]]]:
        """Method, path, id and description of everything that can be asked for."""
        return [
            (method.upper(), path, said["operationId"], said)
            for path, methods in document()["paths"].items()
            for method, said in methods.items()
        ]

    async def ask(self, method: str, path: str, token: str | None = None, **more: Any):
        headers = dict(more.pop("headers", {}))
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        transport = httpx.ASGITransport(
            self.guard, raise_app_exceptions=False, client=("10.0.0.1", 5000)
        )
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.request(method, path, headers=headers, **more)


@asynccontextmanager
async def world(**options: Any) -> AsyncGenerator[World]:
    store = SqliteStore.in_memory()
    await store.open()
    made = World(store, **options)
    await made.fill()
    yield made
    await store.close()
