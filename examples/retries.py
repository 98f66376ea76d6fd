"""What fails is tried again, unless that makes no sense."""

import asyncio

from daybell import App, Context, ExecutionFailed, PermanentError, Retry

app = App()


@app.task(retries=Retry.delays("100ms", "200ms"))
async def fetch(ctx: Context, url: str) -> str:
    pages = ctx.checkpoint.get("pages", 0)  # as the last attempt left it
    print(f"attempt {ctx.attempt} begins with {pages} pages")
    ctx.checkpoint["pages"] = pages + 10
    if ctx.failures < 2:
        raise ConnectionError(f"{url} does not answer")
    return "fetched"


@app.task(retries=5)
async def charge(card: str) -> None:
    raise PermanentError(f"card {card} has expired")  # five more tries would not help


async def main() -> None:
    async with app, app.worker():
        print(await (await fetch.enqueue("https://example.org")).result(timeout=30))
        try:
            await (await charge.enqueue("4242")).result(timeout=30)
        except ExecutionFailed as error:
            print(error.state, "-", error.failure and error.failure.message)


asyncio.run(main())
# Expected output:
# attempt 1 begins with 0 pages
# attempt 2 begins with 10 pages
# attempt 3 begins with 20 pages
# fetched
# dead - card 4242 has expired
