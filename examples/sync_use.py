"""Scripts, Flask, Django: code without an event loop enqueues and waits with `.sync`."""

import asyncio
import threading

from daybell import App

app = App()
done = threading.Event()


@app.task
def resize(width: int, height: int) -> str:  # not async: the worker runs it in a thread
    return f"{width}x{height}"


async def work() -> None:
    async with app.worker():
        await asyncio.to_thread(done.wait)


handle = resize.sync.enqueue(640, height=480)
many = resize.sync.enqueue_many([{"width": n, "height": n} for n in (1, 2)])
print(handle.status(), len(many))

worker = threading.Thread(target=asyncio.run, args=[work()])  # usually a process: daybell worker
worker.start()
print(handle.result(timeout=30))
print([one.result(timeout=30) for one in many])
done.set()
worker.join()

# Expected output:
# queued 2
# 640x480
# ['1x1', '2x2']
