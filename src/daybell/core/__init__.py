"""What Daybell decides, as pure functions and values: no I/O, no clock, no dice, no asyncio.

- `job`, `execution`, `worker`, `schedule`: the nouns; `view`: what listings show of them
- `lifecycle`: which moves an execution can make, and what each event leads to
- `when`: the language of schedules, where their ticks are, and what is done about missed ones
- `retry`: how often, and how long to wait; `failure`: what is kept of an exception
- `payload`: arguments and results as JSON text; `arguments`: between a call and that text
- `duration`, `instant`, `priority`: small languages of their own
- `limits`: every limit in one page, and what a name may look like
"""
