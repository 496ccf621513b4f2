"""A rank that cannot read goes on, and its group with it."""

from __future__ import annotations

from cluster.block_span import BlockSpan
from kvtransfer.rank_words import (
    ConnectPeer,
    DisconnectPeer,
    DropRead,
    ReadBlocks,
    ReaderWord,
    pack,
    unpack_ended,
)
from tests.worker.kv.test_kv_port import PEER
from worker.kv.port_words import INTAKE
from worker.kv.rank_port import RankPort


class PlayedExporter:
    greeting = b""


class PlayedReader:
    """Cruel at first: what it needs is not to be had."""

    busy = False

    def __init__(self) -> None:
        self.num_tries = 0
        self.told: list[bytes] = []

    def made(self) -> PlayedReader:
        self.num_tries += 1
        if self.num_tries == 1:
            raise RuntimeError("can't start new thread")
        return self

    def handle(self, word: bytes) -> None:
        self.told.append(word)

    def poll(self) -> list[bytes]:
        return []


def read_of(number: int, *ranks: int) -> ReadBlocks:
    return ReadBlocks(
        number=number,
        ranks=list(ranks),
        request_id="a",
        incarnation="p",
        span=BlockSpan(0, [0], [1], b""),
        local_block_ids=[3],
        into=None,
    )


def test_reads_of_a_rank_fail_with_the_reason_until_the_next_source_is_connected() -> None:
    reader = PlayedReader()
    port = RankPort(
        PlayedExporter(),  # type: ignore[arg-type]
        lambda: reader.made(),  # type: ignore[arg-type, return-value]
        rank=1,
        reads_by_trade=False,
    )

    def tell(word: ReaderWord) -> None:
        port.handle(INTAKE + pack(word))

    tell(ConnectPeer("p", PEER))
    for word in (read_of(1, 0, 1), read_of(2, 0), DropRead(1)):
        tell(word)
    assert port.busy
    (answer,) = map(unpack_ended, port.poll())
    assert answer.number == 1 and not answer.verified and "new thread" in answer.error
    assert not port.busy and port.poll() == []
    for word in (ConnectPeer("gone", PEER), DisconnectPeer("p")):
        tell(word)
    assert [*map(len, reader.told)] == [
        len(pack(word))
        for word in (ConnectPeer("p", PEER), ConnectPeer("gone", PEER), DisconnectPeer("p"))
    ]
