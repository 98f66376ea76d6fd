"""One node per item of a list that is known only when it comes to it; conditions and branches."""

import asyncio

from daybell import App

app = App()


@app.task
async def find_pages(site: str) -> list[str]:
    return [f"{site}/{name}" for name in ("about", "contact", "imprint")]


@app.task
async def size(page: str) -> int:
    return len(page)


@app.task
def judge(size: list[int]) -> str:
    return "publish" if sum(size) < 100 else "complain"


@app.task
def act(judge: str) -> str:
    return f"chose to {judge}"


with app.workflow("crawl", max_running=2) as crawl:
    pages = find_pages.bind("example.org")
    judged = size.map(pages.output) >> judge
    publish, complain = act.node("publish"), act.node("complain")
    judge.branch(publish, complain)


async def main() -> None:
    async with app, app.worker():
        handle = await crawl.enqueue()
        print(await handle.result(timeout=30))


asyncio.run(main())

# Expected output:
# {'publish': 'chose to publish'}
