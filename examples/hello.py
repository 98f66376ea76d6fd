"""A task, a worker for a moment, and the result."""

import asyncio

from daybell import App

app = App()  # keeps everything in daybell.db, unless DAYBELL_DATABASE_URL says otherwise


@app.task
async def greet(name: str) -> str:
    return f"Hello, {name}"


async def main() -> None:
    async with app, app.worker():
        handle = await greet.enqueue("Ada")
        print(await handle.result(timeout=30))
        print(await handle.status())

        print("called, it just runs:", await greet("Grace"))


asyncio.run(main())

# Expected output:
# Hello, Ada
# succeeded
# called, it just runs: Hello, Grace
