"""Counters without locks tell what the library's own would."""

from prometheus_client import CollectorRegistry, Counter, generate_latest

from router.telemetry.quick_counter import QuickCounters


def _told(registry: CollectorRegistry) -> list[bytes]:
    lines = generate_latest(registry).splitlines()
    return [line for line in lines if b"_created" not in line]


def test_one_series_reads_like_the_librarys() -> None:
    own, theirs = CollectorRegistry(), CollectorRegistry()
    quick = QuickCounters("tokens", "Tokens", own).of[()]
    plain = Counter("tokens", "Tokens", registry=theirs)
    for counter in (quick, plain):
        counter.inc()
        counter.inc(41)
    assert _told(own) == _told(theirs)


def test_series_of_several_labels_read_like_the_librarys() -> None:
    own, theirs = CollectorRegistry(), CollectorRegistry()
    rows = [("batch", "prompt"), ("batch", "cached")]
    quick = QuickCounters("tokens", "Tokens", own, labels=("class", "kind"), rows=rows)
    plain = Counter("tokens", "Tokens", ["class", "kind"], registry=theirs)
    for row in rows:
        quick.of[row].inc(3)
        plain.labels(*row).inc(3)
    assert _told(own) == _told(theirs)
