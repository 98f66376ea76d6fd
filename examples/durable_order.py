"""A function that is charged once, sleeps without a worker, and waits for a person."""

import asyncio

from daybell import App, Context

app = App()
charged: list[int] = []


def charge(order_id: int) -> str:
    charged.append(order_id)
    return f"receipt {order_id}"


@app.task(retries=2)
async def order(ctx: Context, order_id: int) -> str:
    receipt = await ctx.step("charge", charge, order_id)
    await ctx.sleep("100ms")
    decision = await ctx.wait_for_approval(timeout="7d")
    answer = "shipped" if decision else "sent back"
    return f"{receipt}, {answer} by {decision.by}, in attempt {ctx.attempt}"


async def main() -> None:
    async with app, app.worker():
        handle = await order.enqueue(42)
        while await handle.status() != "waiting":  # noqa: ASYNC110 - nothing here would tell us
            await asyncio.sleep(0.01)
        print("waiting, without a worker:", (await handle.execution()).worker_id is None)

        await handle.approve(by="ada")
        print(await handle.result(timeout=30))
        print("charged:", charged)


asyncio.run(main())

# Expected output:
# waiting, without a worker: True
# receipt 42, shipped by ada, in attempt 3
# charged: [42]
