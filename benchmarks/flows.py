"""The workflows that `benchmarks/probe.py` measures beside an earlier commit: a chain and a fan."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Final

from daybell import App

CHAIN: Final = 40
FAN: Final = 5_000

app = App(os.environ.get("DAYBELL_DATABASE_URL"))


@app.task
async def pass_on() -> None: ...


with app.workflow("chain") as chain:
    for first, then in pairwise(pass_on.node(f"link-{n}") for n in range(CHAIN)):
        _ = first >> then
with app.workflow("fan") as fan:
    middle = [pass_on.node(f"node-{n}") for n in range(FAN - 2)]
    _ = pass_on.node("first") >> middle >> pass_on.node("last")
