"""The text that Prometheus reads."""

from prometheus_client.parser import text_string_to_metric_families

from daybell.core.monitoring.metrics import (
    METRICS,
    OF_PROCESS,
    PREFIX,
    Distribution,
    Reading,
    expose,
)
from daybell.core.monitoring.stats import bucket_of


def read(readings, metrics=None):
    """The samples of an exposition, by name and values of labels in the order of their names."""
    text = expose(readings, metrics or METRICS.values()).decode()
    return {
        (sample.name, *dict(sorted(sample.labels.items())).values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_value_is_written_with_its_labels():
    found = read([Reading("queue_depth", ("acme", "mail", "queued"), 3)])

    assert found["daybell_queue_depth", "mail", "queued", "acme"] == 3


def test_counters_and_histograms_without_labels_begin_at_zero():
    found = read([])

    assert found["daybell_stale_reports_total",] == 0
    assert found["daybell_lost_leases_total",] == 0
    assert found["daybell_schedule_lateness_seconds_count",] == 0
    assert ("daybell_store_bytes",) not in found


def test_a_histogram_counts_durations_up_to_each_bound():
    buckets = {bucket_of(0.005): 2, bucket_of(3.0): 5, bucket_of(1e9): 1}
    found = read([Reading("run_seconds", ("t", "q", "task"), Distribution(buckets, 20.0))])

    name = "daybell_run_seconds_bucket"
    assert found[name, "task", "0.0047", "q", "t"] == 0
    assert found[name, "task", "0.01", "q", "t"] == 2
    assert found[name, "task", "2.2", "q", "t"] == 2
    assert found[name, "task", "4.7", "q", "t"] == 7
    assert (
        found[name, "task", "+Inf", "q", "t"]
        == found["daybell_run_seconds_count", "task", "q", "t"]
        == 8
    )
    assert found["daybell_run_seconds_sum", "task", "q", "t"] == 20


def test_the_sum_of_a_histogram_is_estimated_if_it_is_not_known():
    found = read([Reading("run_seconds", ("t", "q", "task"), Distribution({bucket_of(2.0): 10}))])

    assert 18 < found["daybell_run_seconds_sum", "task", "q", "t"] < 22


def test_only_the_metrics_that_are_asked_for_are_written():
    names = {name for name, *_ in read([Reading("queue_depth", ("t", "q", "s"), 1)], OF_PROCESS)}

    assert not any(name.startswith(f"{PREFIX}queue") for name in names)


def test_names_and_labels_follow_the_rules_of_prometheus():
    for name, metric in METRICS.items():
        assert name.endswith("_total") is (metric.kind == "counter")
        assert name.replace("_", "").isalnum() and name == name.lower()
        assert set(metric.labels) <= {
            "tenant", "queue", "kind", "job", "state", "outcome", "role", "table", "result",
            "decision", "operation", "code", "limit",
        }  # fmt: skip
