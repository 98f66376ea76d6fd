"""A web application that answers at once and leaves the work to a worker.

Needs FastAPI and httpx, which `make install` brings; `make run` alone does not.
"""

import asyncio

import httpx
from fastapi import FastAPI

from daybell import App

app = App()
web = FastAPI(lifespan=lambda _: app.worker())  # `lambda _: app` where `daybell worker` works


@app.task(retries=5)
async def welcome(name: str) -> str:
    return f"a mail to {name}"


@web.post("/users/{name}", status_code=202)
async def sign_up(name: str):
    return {"execution_id": (await welcome.enqueue(name)).id}


@web.get("/executions/{id}")
async def look(id: str):
    return (await app.client().execution(id)).result


async def visit():
    visitor = httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://web")
    async with web.router.lifespan_context(web), visitor:
        answer = await visitor.post("/users/Ada")
        url = f"/executions/{answer.json()['execution_id']}"
        result = None
        while result is None:
            await asyncio.sleep(0.05)
            result = (await visitor.get(url)).json()
        print(answer.status_code, result)


if __name__ == "__main__":
    asyncio.run(visit())

# Expected output:
# 202 a mail to Ada
