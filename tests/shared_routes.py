"""What FastAPI makes of a route, made once in a process and not again for every application."""

from dataclasses import replace
from typing import Any

from fastapi import routing


def share_routes() -> None:
    """Let all applications of this process share their analysed routes.

    FastAPI analyses each route again for each application, at the first request that comes by:
    30 to 90 milliseconds of most tests of the API. Nothing in the result belongs to one
    application as long as no dependency is overridden, and Daybell overrides none.
    """
    contexts: Any = getattr(routing, "_EffectiveRouteContext", None)
    if contexts is None:
        return  # the lowest version analyses routes as they are added
    analyse = contexts.from_api_route

    def find(*, original_route: Any, include_context: Any) -> Any:
        # Kept by the route itself: a route that one application has to itself goes with it.
        made = original_route.__dict__.setdefault("made_for_tests", {})
        if include_context.prefix not in made:
            made[include_context.prefix] = analyse(
                original_route=original_route,
                include_context=replace(include_context, dependency_overrides_provider=None),
            )
        return made[include_context.prefix]

    contexts.from_api_route = staticmethod(find)
