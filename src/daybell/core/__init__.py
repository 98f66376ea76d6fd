"""What Daybell decides, as pure functions and values: no I/O, no clock, no dice, no asyncio.

- `limits`: every limit in one page, and what a name may look like
- `duration`: "1h30m" to seconds and back
- `priority`: four of them
- `retry`: how often, and how long to wait
- `payload`: arguments and results as JSON text
- `failure`: what is kept of an exception
"""
