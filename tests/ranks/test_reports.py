"""Reports come to their conductor in order; those of another generation do not count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from cluster.errors import InternalError, RankLost
from cluster.rank_facts import RankFacts
from ranks.channels import MAX_WAITING, Channels, speak_to
from ranks.reports import (
    MAX_REPORT_BYTES,
    Arrived,
    PartLoaded,
    Progress,
    RankFailed,
    RankReady,
    RankReport,
    ReportInbox,
    ReportSender,
    Said,
    Word,
)

LIMIT_S = 60.0
FACTS = RankFacts(
    rank=2,
    pid=3,
    node="here",
    device="cpu",
    generation=7,
    kv_heads=(1, 2),
    weight_bytes=4,
    kv_bytes=5,
    peak_bytes=6,
    loaded_as="plain",
)
READY = RankReady(facts=FACTS, extension=b"hello")


class Inbox(ReportInbox):
    """Of three ranks, with the keys for them."""

    def __init__(self, channels: Channels) -> None:
        super().__init__(channels, world_size=3, generation=7)
        self.keys = channels.keys

    def sender(self) -> ReportSender:
        """Of rank 2; for the caller to close."""
        return ReportSender(self.address, 2, 7, self.keys)


@pytest.fixture(params=["ipc", "tcp"])
def inbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Inbox]:
    channels = Channels(tmp_path if request.param == "ipc" else "127.0.0.1")
    made = Inbox(channels)
    yield made
    made.close()
    made.close()
    channels.close()
    channels.close()


def report(said: Said) -> RankReport:
    """Of rank 2, as it arrives."""
    return RankReport(rank=2, generation=7, said=said)


def taken(inbox: Inbox, count: int) -> list[RankReport]:
    """What is dropped wakes who waits, too: at most fifty messages of a test."""
    found: list[RankReport] = []
    for _ in range(count + 50):
        if len(found) < count:
            found += inbox.take(LIMIT_S)
    return found


def test_every_kind_of_report_comes_as_it_was_sent_and_in_order(inbox: Inbox) -> None:
    said: list[Said] = [
        Arrived(),
        Progress(phase="load weights", fraction=0.5),
        PartLoaded(),
        READY,
        Word(body=b"\x00opaque"),
        RankFailed(code="config_error", message="no"),
    ]
    sender = inbox.sender()
    for each in said:
        sender.send(each)
    assert taken(inbox, len(said)) == [report(each) for each in said]
    assert inbox.take() == []
    sender.close()
    sender.close()


def test_what_is_no_report_of_this_group_is_dropped_with_few_lines_for_many(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    context: zmq.Context[zmq.Socket[bytes]]
    pack = msgspec.msgpack.encode
    with zmq.Context() as context, speak_to(context, zmq.PUSH, inbox.address, inbox.keys) as odd:
        for _ in range(40):
            odd.send(b"\xc1 no msgpack")
        for other in ({"generation": 6}, {"rank": 0}, {"rank": 3}):
            odd.send(pack(msgspec.structs.replace(report(READY), **other)))
        odd.send(pack(report(READY)))
        assert taken(inbox, 1) == [report(READY)]
    assert len([each for each in caplog.records if "was dropped" in each.message]) == 6


def test_a_flood_of_reports_is_read_in_pieces(inbox: Inbox) -> None:
    sender = inbox.sender()
    num_sent, most = 0, 0
    while num_sent < 5 * MAX_WAITING:
        try:
            sender.send(Progress(phase="load", fraction=0.5))
            num_sent += 1
        except RankLost:
            most = max(most, len(inbox.take(1.0)))
    sender.close(linger_ms=0)
    assert 0 < most <= 256


def test_a_conductor_that_reads_nothing_is_lost_and_not_fed_without_end(inbox: Inbox) -> None:
    sender = inbox.sender()
    word = Word(body=bytes(10_000))
    with pytest.raises(RankLost, match="takes no reports any more"):
        for _ in range(10 * MAX_WAITING):
            sender.send(word)
    sender.close(linger_ms=0)


def test_a_report_that_the_conductor_would_not_take_is_not_sent(inbox: Inbox) -> None:
    sender = inbox.sender()
    with pytest.raises(InternalError, match="the conductor takes"):
        sender.send(Word(body=bytes(MAX_REPORT_BYTES)))
    sender.send(READY)
    assert taken(inbox, 1) == [report(READY)]
    sender.close()
