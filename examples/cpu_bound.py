"""Work that computes for long runs in processes: on all processors, and within limits."""

import asyncio
import os

from daybell import App, ExecutionFailed

app = App()


@app.task(isolation="process")
def count_primes(start: int, stop: int) -> int:
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(start, stop))


@app.task(isolation="process", timeout="1s", retries=0)
def count_for_ever() -> None:
    sum(iter(int, 1))  # in C, where a thread could not be interrupted


@app.task(isolation="process", memory_limit="100MB", retries=0)
def hoard() -> int:
    return len(bytearray(10**9))


@app.task(isolation="process", retries=0)
def crash() -> None:
    os.abort()


async def main() -> None:
    async with app, app.worker():
        ranges = [{"start": n, "stop": n + 2_500} for n in range(2, 10_002, 2_500)]
        parts = await count_primes.enqueue_many(ranges)
        print(sum([await part.result(timeout=30) for part in parts]), "primes")

        for task in (count_for_ever, hoard, crash):
            handle = await task.enqueue()
            try:
                await handle.result(timeout=30)
            except ExecutionFailed as error:
                assert error.failure is not None
                print(f"{task.name}: {error.failure.type}: {error.failure.message}")


if __name__ == "__main__":  # the processes import this file, too
    asyncio.run(main())

# Expected output:
# 1229 primes
# count_for_ever: TimeoutError: it did not end within its timeout of 1 s
# hoard: MemoryLimit: the task needed more memory than its memory_limit of 100MB
# crash: ProcessDied: the task's process was killed by SIGABRT (…)
