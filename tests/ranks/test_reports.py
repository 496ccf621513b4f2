"""Reports come to their conductor in order; those of another generation do not count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from ranks.reports import (
    Progress,
    RankFailed,
    RankReady,
    RankReport,
    ReportInbox,
    ReportSender,
    Word,
)

LIMIT_S = 60.0
READY = RankReady(
    rank=2,
    generation=7,
    pid=3,
    device="cpu",
    num_blocks=9,
    kv_heads=[1, 2],
    weight_bytes=4,
    kv_bytes=5,
    peak_bytes=6,
    extension=b"hello",
)


@pytest.fixture(params=["ipc", "tcp"])
def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ReportInbox]:
    address = f"ipc://{tmp_path}/reports" if request.param == "ipc" else "tcp://127.0.0.1"
    made = ReportInbox(address, 7)
    yield made
    made.close()
    made.close()


def taken(inbox: ReportInbox, count: int) -> list[RankReport]:
    """What is dropped wakes who waits, too: at most two messages of a test."""
    found: list[RankReport] = []
    for _ in range(count + 2):
        if len(found) < count:
            found += inbox.take(LIMIT_S)
    return found


def test_every_kind_of_report_comes_as_it_was_sent_and_in_order(inbox: ReportInbox) -> None:
    reports = [
        Progress(rank=2, generation=7, phase="load weights", fraction=0.5),
        READY,
        Word(rank=2, generation=7, body=b"\x00opaque"),
        RankFailed(rank=2, generation=7, code="config_error", message="no"),
    ]
    sender = ReportSender(inbox.address)
    for report in reports:
        sender.send(report)
    assert taken(inbox, len(reports)) == reports
    assert inbox.take() == []
    sender.close()
    sender.close()


def test_reports_of_another_generation_and_what_is_no_report_are_dropped(
    inbox: ReportInbox,
) -> None:
    sender = ReportSender(inbox.address)
    sender.send(msgspec.structs.replace(READY, generation=6))
    with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.connect(inbox.address)
        stranger.send(b"\xc1 no msgpack")
        sender.send(READY)
        assert taken(inbox, 1) == [READY]
    sender.close()
