"""A worker that serves others from its pool goes on when it cannot read from theirs."""

from __future__ import annotations

from cluster.block_span import BlockSpan
from cluster.kv_peer import KvPeer
from engine.contract.commands import Abandon, Cancel, Command, Connect, Disconnect, Fetch
from engine.contract.messages import Frame
from worker.kv.kv_port import KvPort

PEER = KvPeer(
    transport="loopback",
    shares_blocks=False,
    blocks_each=8,
    block_size_tokens=4,
    generations_address=0,
    host="h",
    ranks=(),
)


class PlayedExporter:
    peer: KvPeer | None = None
    transport = "loopback"

    def enrich(self, frame: Frame) -> None:
        frame.kv_transport = self.transport


class PlayedIntake:
    """Cruel at first: what it needs is not to be had."""

    busy = False

    def __init__(self) -> None:
        self.num_failures = 2
        self.num_tries = 0
        self.told: list[Command] = []

    def made(self) -> PlayedIntake:
        self.num_tries += 1
        if self.num_tries <= self.num_failures:
            raise RuntimeError("can't start new thread")
        return self

    def handle(self, command: Command) -> bool:
        self.told.append(command)
        return True

    def enrich(self, frame: Frame) -> None:
        frame.fetched = []


def port_of(intake: PlayedIntake) -> KvPort:
    return KvPort(
        PlayedExporter(),  # type: ignore[arg-type]
        lambda: intake.made(),  # type: ignore[arg-type, return-value]
        reads_by_trade=False,
    )


def fetch_of(incarnation: str) -> Fetch:
    return Fetch("a", incarnation, BlockSpan(3, [0], [1], b""))


def test_reads_fail_with_the_reason_where_the_intake_cannot_be_made() -> None:
    port = port_of(PlayedIntake())
    assert port.handle(Connect("p", PEER))
    assert port.handle(fetch_of("p")) and port.busy
    assert port.handle(Abandon("a", "p")) and not port.handle(Cancel("a"))
    port.enrich(frame := Frame())
    (answer,) = frame.fetched
    assert (answer.request_id, answer.incarnation, answer.first_index) == ("a", "p", 3)
    assert answer.num_blocks == 0 and "can't start new thread" in answer.error
    port.enrich(frame := Frame())
    assert not frame.fetched and not port.busy and not port.has_reads("a")


def test_the_next_source_tries_again_and_those_before_it_are_connected_too() -> None:
    port = port_of(intake := PlayedIntake())
    first, gone, last = (Connect(name, PEER) for name in ("first", "gone", "last"))
    for command in (first, gone, Disconnect("gone"), last):
        assert port.handle(command)
    assert intake.told == [first, last] and intake.num_tries == 3
    port.handle(asked := fetch_of("first"))
    assert intake.told[-1] is asked and not port.busy
