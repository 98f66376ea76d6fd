"""Traces of executions by OpenTelemetry, with the extra `daybell[otel]`.

Spans: `enqueue`, `wait` (from the time that an attempt is due to its start), `run` (an attempt),
`step`. `DAYBELL_TRACES=otlp` calls `export` in the commands that keep running.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from daybell.core.execution import Claimed, Failure, NewExecution, Outcome, State
from daybell.core.monitoring import observers
from daybell.errors import RetryLater, Suspended, UsageError, install_advice
from daybell.version import VERSION

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as SdkProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import (
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        StatusCode,
        TraceFlags,
        TracerProvider,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise UsageError(f"OpenTelemetry is not installed: {install_advice('otel')}") from None

__all__ = ["disable", "enable", "export"]

_W3C: Final = TraceContextTextMapPropagator()
_enabled: list[Tracing] = []


def enable(provider: TracerProvider | None = None) -> None:
    """Trace what this process enqueues and runs. Without a provider: the global one."""
    disable()
    tracing = Tracing(provider or trace.get_tracer_provider())
    _enabled.append(tracing)
    observers.add(tracing)


def disable() -> None:
    """Trace nothing any more."""
    while _enabled:
        observers.remove(_enabled.pop())


def export() -> None:
    """Trace this process, and send spans by OTLP over HTTP, to where the variables `OTEL_…` say. A
    global provider that was set before is used instead.
    """
    try:  # it takes long, and few need it
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError:
        raise UsageError(f"the exporter is not installed: {install_advice('otel')}") from None
    if not isinstance(trace.get_tracer_provider(), SdkProvider):
        # `OTEL_SERVICE_NAME` wins over this name.
        provider = SdkProvider(resource=Resource.create({"service.name": "daybell"}))
        provider.add_span_processor(BatchSpanProcessor(otlp.OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    enable()


class Tracing:
    """Makes the spans of one provider."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("daybell", VERSION)
        self._sampler: Any = getattr(provider, "sampler", None)

    @contextmanager
    def enqueue(self, executions: Sequence[NewExecution]) -> Generator[str | None]:
        """Make a span, whose context is stored with the executions."""
        parent, given = None, observers.incoming.get()
        if given is not None and not trace.get_current_span().get_span_context().is_valid:
            parent = _W3C.extract({"traceparent": given})
        first = executions[0]
        named: dict[str, Any] = {"daybell.job": first.job, "daybell.count": len(executions)}
        if len(executions) == 1:
            named["daybell.execution_id"] = str(first.id)
        with self._span(f"enqueue {first.job}", SpanKind.PRODUCER, parent, named) as span:
            try:
                yield _traceparent_of(span)
            except Exception as error:
                span.set_status(StatusCode.ERROR, type(error).__name__)
                raise

    @contextmanager
    def run(
        self, claimed: Claimed, trace: str | None, mask: Callable[[str], str]
    ) -> Generator[None]:
        """Make the spans of an attempt: its wait, and its run."""
        parent = self._parent(claimed, trace)
        named = {
            "daybell.job": claimed.job,
            "daybell.execution_id": str(claimed.id),
            "daybell.attempt": claimed.attempt,
            "daybell.tenant": claimed.tenant,
            "daybell.queue": claimed.queue,
        }
        if claimed.node is not None:
            named["daybell.node"] = claimed.node
        self._tracer.start_span(
            f"wait {claimed.job}",
            context=parent,
            attributes=named,
            start_time=int(claimed.run_at * 1e9),
        ).end()
        run = self._span(f"run {claimed.job}", SpanKind.CONSUMER, parent, named)
        with run as span, _noted(span, mask):
            yield

    @contextmanager
    def step(self, name: str, mask: Callable[[str], str]) -> Generator[None]:
        """Make the span of a step."""
        step = self._span(f"step {name}", SpanKind.INTERNAL, None, {"daybell.step": name})
        with step as span, _noted(span, mask):
            yield

    def end(self, claimed: Claimed, state: State, outcome: Outcome | None) -> None:
        """Do nothing: spans end by themselves."""

    def headers(self) -> dict[str, str]:
        """Return the context of the current span."""
        found: dict[str, str] = {}
        _W3C.inject(found)
        return found

    def _span(
        self, name: str, kind: SpanKind, parent: Context | None, attributes: dict[str, Any]
    ) -> Any:
        # Errors are noted by `_noted`, without secrets.
        return self._tracer.start_as_current_span(
            name,
            context=parent,
            kind=kind,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        )

    def _parent(self, claimed: Claimed, stored: str | None) -> Context:
        """Return the context of an execution. One that was enqueued without any, such as by a
        schedule, has a trace with its id, or with the id of its run.
        """
        if stored is not None:
            return _W3C.extract({"traceparent": stored}, context=Context())
        root = claimed.id if claimed.node is None or claimed.parent is None else claimed.parent
        is_sampled = True
        if self._sampler is not None:
            found = self._sampler.should_sample(None, root.int, f"run {claimed.job}")
            is_sampled = found.decision.is_sampled()
        context = SpanContext(
            trace_id=root.int,
            span_id=root.int & (2**64 - 1),
            is_remote=True,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT),
        )
        return trace.set_span_in_context(NonRecordingSpan(context), Context())


def _traceparent_of(span: Span) -> str | None:
    found: dict[str, str] = {}
    _W3C.inject(found, context=trace.set_span_in_context(span, Context()))
    return found.get("traceparent")


@contextmanager
def _noted(span: Span, mask: Callable[[str], str]) -> Generator[None]:
    """Note the error of a block. A wait, a stop and a later retry are no errors."""
    try:
        yield
    except RetryLater:
        span.set_attribute("daybell.outcome", "retry_later")
        raise
    except Exception as error:
        failure = Failure.from_exception(error, mask=mask)
        span.set_status(StatusCode.ERROR, failure.type)
        told = {"exception.type": failure.type, "exception.message": failure.message}
        span.add_event("exception", told | {"exception.stacktrace": failure.traceback})
        raise
    except Suspended as wish:
        span.set_attribute("daybell.outcome", str(wish.reason or "waiting"))
        raise
    except BaseException:
        span.set_attribute("daybell.outcome", "stopped")
        raise
