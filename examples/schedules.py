"""Schedules: by the clock, by an interval, after an end; what overlaps, and what was missed.

Time is moved by hand here, so that a day takes a moment. In a real program, `daybell dev` or any
number of `daybell scheduler` fire.
"""

import asyncio

from daybell import App, Context, cron, every
from daybell.testing import Bench

app = App()


# Working days at nine in Berlin, summer and winter. A tick that nobody was there for is made up
# for once, however many there were.
@app.task(schedule=cron("0 9 * * mon-fri", tz="Europe/Berlin"), misfire="fire_once")
def morning_report(ctx: Context) -> None:
    print(f"{ctx.scheduled_for:%a %H:%M} report, last one for {ctx.previous_success or 'never'}")


# Eight hours after the last run has ended, however long it took.
@app.task(schedule=every("8h", mode="delay"))
async def tidy_up(ctx: Context) -> None:
    print(f"{ctx.scheduled_for:%a %H:%M} tidied up")


# At most one waits while another runs; a third one is skipped, and on record as such.
@app.task(schedule=every("12h"), overlap="queue", args={"source": "shop"})
async def import_orders(ctx: Context, source: str) -> None:
    print(f"{ctx.scheduled_for:%a %H:%M} imported from {source}")


@app.task
async def remind(whom: str) -> None:
    print("reminded", whom)


async def main() -> None:
    with Bench(app) as bench:  # it is Tuesday noon, UTC
        await app.schedule(remind, "30 18 * * *", args={"whom": "Ada"}, name="ada")
        await bench.advance("1d")

        client = await app.open()
        await client.pause("import_orders", "the shop moves")
        await bench.advance("1d", import_orders)
        await client.resume("import_orders")
        found = await client.backfill("import_orders", "2030-01-02", "2030-01-04", dry_run=True)
        print("missed while paused:", len(found.items))


asyncio.run(main())

# Expected output:
# reminded Ada
# Tue 20:00 tidied up
# Wed 00:00 imported from shop
# Wed 04:00 tidied up
# Wed 08:00 report, last one for never
# Wed 12:00 imported from shop
# Wed 12:00 tidied up
# missed while paused: 2
