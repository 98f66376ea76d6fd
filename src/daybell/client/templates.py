"""Templates: jobs with blanks, from which others are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daybell.client.fields import check_fields, rest_of, retries_of
from daybell.client.kinds import choice_of, read_kind
from daybell.client.requests import read_definition
from daybell.core.limits import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX
from daybell.core.template import NewTemplate, Template, check_lines
from daybell.core.view import Page, read_pages
from daybell.errors import UsageError
from daybell.store.protocol import Store


class Templates:
    """The verbs of `Client` for templates."""

    store: Store
    tenant: str

    async def set_template(
        self, value: Mapping[str, Any], *, author: str = "", expect: int | None = None
    ) -> Template:
        """Keep a template: an object with `name`, `parameters` and `job`. One of the same name is
        replaced; jobs that were made from it stay what they are.

        With `expect`, it must be at that version; 0 is for a name that must be new.
        """
        new = read_template(value)
        return await self.store.set_template(self.tenant, new, author=author, expect=expect)

    async def template(self, name: str) -> Template:
        """A template. Raises TemplateNotFound."""
        return await self.store.get_template(self.tenant, name)

    async def templates_page(
        self, *, limit: int = PAGE_ITEMS_DEFAULT, cursor: str | None = None
    ) -> Page[Template]:
        """Templates, by name."""
        return await self.store.list_templates(self.tenant, limit=limit, cursor=cursor)

    async def templates(self) -> list[Template]:
        """All templates, by name."""
        pages = read_pages(lambda at: self.templates_page(limit=PAGE_ITEMS_MAX, cursor=at))
        return [one async for page in pages for one in page]

    async def delete_template(self, name: str, *, expect: int | None = None) -> None:
        """Remove a template. Jobs that were made from it stay."""
        await self.store.delete_template(self.tenant, name, expect=expect)


def read_template(value: object) -> NewTemplate:
    """A template whose job can be made: its fields exist, and one of them says what it runs.

    What it says is looked at as a whole if it needs no parameters; else what is wrong with it shows
    when a job is made.
    """
    new = NewTemplate.parse(value)
    try:
        check_fields(new.job, "a job")
        choice = choice_of(new.job)
        check_lines(new.job)
        if not any(one.is_required for one in new.parameters.values()):
            _check_whole(new.job_with({}), choice)
    except UsageError as error:
        error.field = "job" if error.field is None else f"job.{error.field}"
        raise
    return new


def _check_whole(job: Mapping[str, Any], choice: str) -> None:
    options: dict[str, Any] = {**rest_of(job), **retries_of(job)}
    if choice != "task":
        options |= {"kind": choice, "settings": read_kind(choice, job)}
    schedule = options.get("schedule")
    if isinstance(schedule, Mapping) and "delay" in schedule:
        del options["schedule"]  # it counts from when a job is made
    read_definition("job", **options)
