"""The better priority goes first, whenever it was enqueued."""

import asyncio

from daybell import App

app = App()


@app.task(priority="low")
async def newsletter(number: int) -> None:
    print("newsletter", number)


@app.task(priority="high")
async def password_reset(name: str) -> None:
    print("password reset for", name)


async def main() -> None:
    async with app:
        letters = await newsletter.enqueue_many([{"number": 1}, {"number": 2}])
        await password_reset.enqueue("Ada")
        await newsletter.options(priority="critical").enqueue(3)

        async with app.worker(concurrency=1):
            await letters[-1].result(timeout=30)


asyncio.run(main())

# Expected output:
# newsletter 3
# password reset for Ada
# newsletter 1
# newsletter 2
