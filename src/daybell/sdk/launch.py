"""The program behind `App.run`. The package registers it: this layer imports none above it."""

from __future__ import annotations

from importlib import import_module

_program = ""


def register(program: str) -> None:
    """Have apps run by a function of a module that is written `module:function`.

    The module is imported at the first run, so that importing the package stays quick.
    """
    global _program
    _program = program


def launch(app: object) -> None:
    """Run an app until the program ends."""
    module, _, function = _program.partition(":")
    getattr(import_module(module), function)(app)
