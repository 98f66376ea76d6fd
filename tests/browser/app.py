"""The app whose jobs the tests look at."""

from daybell import App, Context

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"

app = App()


@app.task
async def greet(name: str, times: int = 1) -> str:
    """Return a greeting."""
    return " ".join([f"Hello, {name}"] * times)


@app.task(retries=0)
async def fail(text: str) -> None:
    """Fail with a text."""
    raise ValueError(text)


@app.task
async def order(ctx: Context, number: int) -> str:
    """Wait for a person."""
    ctx.log.info("%s", f"order {number} {EVIL}")
    decision = await ctx.wait_for_approval()
    return "shipped" if decision else "sent back"


@app.task
async def first() -> int:
    return 1


@app.task
async def second(first: int) -> int:
    return first + 1


with app.workflow("chain"):
    _ = first >> second
