"""Later: after a while, or at a moment; and only one of a kind at a time."""

import asyncio
from datetime import UTC, datetime, timedelta

from daybell import App

app = App()


@app.task
async def remind(whom: str) -> str:
    return f"reminded {whom}"


async def main() -> None:
    async with app:
        soon = await remind.options(delay="1s").enqueue("Ada")
        print("Ada:", await soon.status())

        tomorrow = datetime.now(UTC) + timedelta(days=1)
        late = await remind.options(at=tomorrow, unique_key="grace").enqueue("Grace")
        again = await remind.options(unique_key="grace").enqueue("Grace")
        print("Grace: the same one:", again.id == late.id, "- a new one:", again.created)

        async with app.worker():
            print("Ada:", await soon.result(timeout=30))

        await late.cancel()
        print("Grace:", await late.status())


asyncio.run(main())

# Expected output:
# Ada: scheduled
# Grace: the same one: True - a new one: False
# Ada: reminded Ada
# Grace: cancelled
