"""The life of one execution: defined, enqueued, claimed, failed once, tried again, finished.

A worker will do the middle part by itself. Here each of its calls is made by hand, so that you
can see what is kept, and why a late report does no harm.
"""

import asyncio
import tempfile
from pathlib import Path

from daybell import Client
from daybell.core.ids import mint
from daybell.core.lifecycle import after_failure, after_success
from daybell.core.worker import NewWorker
from daybell.store.open import store_for


async def main(url: str) -> None:
    store = store_for(url)
    await store.migrate()
    await store.open()
    client = Client(store)

    job = await client.define("greet", retries={"backoff": "fixed", "delay": 0})
    print(f"1. defined {job.name}, version {job.version}")

    asked = await client.enqueue("greet", {"name": "Ada"}, unique_key="ada")
    twice = await client.enqueue("greet", {"name": "Ada"}, unique_key="ada")
    print(f"2. enqueued once; the same key again is new: {twice.created}")

    worker = NewWorker(id=mint(), name="by hand")
    await store.queue.register("default", worker, lease=15)

    async def claim():
        # The lease id is ours: if the answer got lost, asking again with it would repeat it.
        answer = await store.queue.claim(
            "default", worker=worker.id, lease=mint(), queues=["default"], limit=1
        )
        return answer.executions[0]

    first = await claim()
    print(f"3. claimed attempt {first.attempt} with {first.args}")

    error = '{"type": "OSError", "message": "no network"}'
    move = after_failure(
        first, job.definition.retry, error=error, kinds=["builtins.OSError"], ran=0.1, jitter=0
    )
    await store.queue.apply("default", worker=worker.id, transitions=[move])
    print(f"4. it failed, so it is {move.target} and may be claimed again")

    second = await claim()
    late = after_success(first, result='"hello from the past"', ran=9.0)
    (verdict,) = await store.queue.apply("default", worker=worker.id, transitions=[late])
    print(f"5. claimed attempt {second.attempt}; a late report of attempt 1 is {verdict.ruling}")

    done = after_success(second, result='"Hello, Ada"', ran=0.1)
    await store.queue.apply("default", worker=worker.id, transitions=[done])
    detail = await client.execution(asked.id)
    print(f"6. {detail.status} with {detail.result!r}")
    for attempt in detail.attempts:
        print(f"   attempt {attempt.attempt} {attempt.outcome}")

    await store.close()


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(f"sqlite:///{Path(folder) / 'first_steps.db'}"))

# Expected output:
# 1. defined greet, version 1
# 2. enqueued once; the same key again is new: False
# 3. claimed attempt 1 with {"name":"Ada"}
# 4. it failed, so it is retrying and may be claimed again
# 5. claimed attempt 2; a late report of attempt 1 is stale
# 6. succeeded with 'Hello, Ada'
#    attempt 1 failed
#    attempt 2 succeeded
