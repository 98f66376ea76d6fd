"""Whom commands ask: the store itself, or a server over HTTP."""

from __future__ import annotations

from daybell.cli.edge import use_server
from daybell.cli.recording import RecordingClient
from daybell.client.remote.client import AnyClient, RemoteClient
from daybell.core.job import DEFAULT_TENANT
from daybell.settings import Settings


def client_for(settings: Settings, *, tenant: str | None = None) -> AnyClient:
    """A client of whichever the settings name; a server wins over a store.

    Without a tenant it is the default one, or over HTTP the one that the key is for.
    """
    if settings.api_url is None:
        named = DEFAULT_TENANT if tenant is None else tenant
        key = settings.secrets_key
        lease = settings.lease
        return RecordingClient(settings.database_url, tenant=named, secrets_key=key, lease=lease)
    use_server()
    return RemoteClient(settings.api_url, key=settings.api_key, tenant=tenant)
