"""A workflow: extract, transform in three ways, load. One of the ways fails at first."""

import asyncio

from daybell import App, Context, Retry

app = App()


@app.task
async def extract() -> list[dict[str, int]]:
    return [{"id": n, "cents": 100 * n} for n in range(1, 6)]


# A parameter that is called like the node before it is given what that one returned.


@app.task
def total(extract: list[dict[str, int]]) -> int:
    return sum(row["cents"] for row in extract)


@app.task(retries=Retry.fixed("50ms", retries=3))
async def newest(ctx: Context, extract: list[dict[str, int]]) -> int:
    if ctx.failures < 2:
        raise ConnectionError("the warehouse does not answer")
    return max(row["id"] for row in extract)


@app.task
def dearest(extract: list[dict[str, int]], least: int) -> list[int]:
    return [row["id"] for row in extract if row["cents"] >= least]


@app.task
def load(total: int, newest: int, dear: list[int]) -> str:
    return f"{total} cents up to row {newest}; dear: {dear}"


# What a run may be given goes by name, too: here to `dearest`.
with app.workflow("etl", params={"least": 0}) as etl:
    extract >> [total, newest, dearest] >> load.bind(dear=dearest.output)


async def main() -> None:
    async with app, app.worker():
        handle = await etl.enqueue(least=400)
        print(await handle.result(timeout=30))

        run = await app.client().execution(handle.id)
        print(run.job, "is", run.status)


asyncio.run(main())

# Expected output:
# 1500 cents up to row 5; dear: [4, 5]
# etl is succeeded
