"""What is counted without locks is told as the library's own histogram tells it."""

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from router.telemetry.quick_histogram import QuickHistogram, QuickHistograms, quantile_ms

BUCKETS = (0.002, 0.01, 1, 5)


def test_it_tells_what_the_librarys_histogram_tells() -> None:
    own, theirs = CollectorRegistry(), CollectorRegistry()
    quick = QuickHistogram("gap_seconds", "Gaps", BUCKETS, own)
    slow = Histogram("gap_seconds", "Gaps", buckets=BUCKETS, registry=theirs)
    for value in (0.0, 0.002, 0.0021, 0.5, 1.0, 4.0, 100.0):
        quick.observe(value)
        slow.observe(value)
    told = [line for line in generate_latest(theirs).splitlines() if b"_created" not in line]
    assert generate_latest(own).splitlines() == told


def test_series_of_a_label_read_like_the_librarys() -> None:
    own, theirs = CollectorRegistry(), CollectorRegistry()
    quick = QuickHistograms(
        "part_seconds", "Parts", BUCKETS, own, label="stage", values=("queue", "kv")
    )
    plain = Histogram("part_seconds", "Parts", ["stage"], buckets=BUCKETS, registry=theirs)
    for stage in ("queue", "kv"):
        quick.of[stage].observe(0.015)
        plain.labels(stage).observe(0.015)
    told = [line for line in generate_latest(theirs).splitlines() if b"_created" not in line]
    assert generate_latest(own).splitlines() == told


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((0, 0, 0, 0), 0.5, None),
        ((1, 0, 0, 0), 0.5, 5.0),
        ((0, 0, 0, 3), 0.95, 1000.0),
        ((5, 5, 0, 0), 0.5, 10.0),
        ((0, 4, 0, 0), 1.0, 100.0),
    ],
)
def test_a_quantile_lies_in_the_bucket_of_its_rank(
    counts: tuple[int, ...], share: float, expected: float | None
) -> None:
    assert quantile_ms((0.01, 0.1, 1.0), counts, share) == expected
