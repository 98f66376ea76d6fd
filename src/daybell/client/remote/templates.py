"""Templates over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daybell.client.remote import reading
from daybell.client.remote.transport import Transport, path_of
from daybell.client.templates import read_template
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, check_name
from daybell.core.template import Template
from daybell.core.view import Page, read_pages


class Templates:
    """The verbs of `Client` for templates."""

    transport: Transport

    async def set_template(
        self, value: Mapping[str, Any], *, author: str = "", expect: int | None = None
    ) -> Template:
        """Keep a template: an object with `name`, `parameters` and `job`. One of the same name is
        replaced. Its author is whoever has the key.

        With `expect`, it must be at that version; 0 is for a name that must be new.
        """
        name = read_template(value).name
        if expect == 0:
            return await self.transport.post("/templates", value, once=True, read=reading.template)
        return await self.transport.put(_path(name), value, version=expect, read=reading.template)

    async def template(self, name: str) -> Template:
        """A template. Raises TemplateNotFound."""
        return await self.transport.get(_path(name), read=reading.template)

    async def templates_page(
        self, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[Template]:
        """Templates, by name."""
        asked = {"limit": limit, "cursor": cursor}
        return await reading.complete_page(self.transport, "/templates", reading.template, asked)

    async def templates(self) -> list[Template]:
        """All templates, by name."""
        pages = read_pages(lambda at: self.templates_page(limit=PAGE_ITEMS_MAX, cursor=at))
        return [one async for page in pages for one in page]

    async def delete_template(self, name: str, *, expect: int | None = None) -> None:
        """Remove a template. Jobs that were made from it stay."""
        await self.transport.delete(_path(name), version=expect, read=lambda _: None)


def _path(name: str) -> str:
    return path_of("templates", check_name(name, what="template"))
