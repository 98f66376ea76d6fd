"""The program of `App.run`. The package registers it, as this layer imports none above it."""

from __future__ import annotations

from importlib import import_module

_program = ""


def register(program: str) -> None:
    """Set the program, as `module:function`. The first run imports it, which keeps the package's
    import fast.
    """
    global _program
    _program = program


def launch(app: object) -> None:
    """Run an app until the program ends."""
    module, _, function = _program.partition(":")
    getattr(import_module(module), function)(app)
