"""Tokens that a worker has sent and no client has read: what they keep, how many there may be."""

from __future__ import annotations

import tracemalloc

import pytest
from google.protobuf.message import Message

from cluster.errors import Cancelled, SplitserveError
from protos import generation_pb2, worker_pb2
from router.fleet.request_stream import (
    MAX_JOINED_TOKENS,
    RequestStream,
    StreamListener,
    WorkerMessage,
)
from router.fleet.unread import ChoiceTokens, UnreadBytes

PLENTY = 10_000_000


class Bench:
    """A stream that counts in `unread`, and what its worker and its listener hear."""

    def __init__(self, unread: UnreadBytes) -> None:
        self.num_told = 0
        self.ends: list[SplitserveError | None] = []
        self.stream = RequestStream(
            max_tokens=PLENTY,
            max_prompt_tokens=PLENTY,
            on_finish=lambda choice: None,
            on_close=self._tell,
            listener=StreamListener(on_end=self.ends.append),
            unread=unread,
        )

    def _tell(self) -> None:
        self.num_told += 1

    def send(self, count: int, *, num_top: int = 0) -> None:
        for frame in (step(num_top=num_top) for _ in range(count)):
            self.stream.add_tokens(frame.tokens[0])


def step(*, num_sequences: int = 1, num_top: int = 0) -> worker_pb2.WorkerFrame:
    top = [
        generation_pb2.TokenLogprob(token_id=7_000 + i, logprob=-i - 0.5) for i in range(num_top)
    ]
    tokens = [generation_pb2.GeneratedToken(token_id=9_000, logprob=-0.25, top=top)]
    each = [worker_pb2.Tokens(request_id=f"r{i}", tokens=tokens) for i in range(num_sequences)]
    frame = worker_pb2.WorkerFrame(tokens=each)
    return worker_pb2.WorkerFrame.FromString(frame.SerializeToString())


async def test_an_unread_token_keeps_nothing_of_the_frame_that_it_came_in() -> None:
    bench = Bench(UnreadBytes())
    bench.stream.add_tokens(step(num_sequences=64).tokens[0])
    read: WorkerMessage = await bench.stream.next()
    assert isinstance(read, ChoiceTokens) and not isinstance(read, Message)
    assert not any(
        isinstance(part, Message) for token in read.tokens for part in (token, token.top)
    )


@pytest.mark.parametrize("num_top", [0, 20])
async def test_what_unread_tokens_count_is_about_what_they_take(num_top: int) -> None:
    unread = UnreadBytes()
    bench = Bench(unread)
    bench.send(10, num_top=num_top)
    before = unread.num
    tracemalloc.start()
    try:
        bench.send(500, num_top=num_top)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 < (unread.num - before) / taken < 2


async def test_a_stream_whose_client_lags_too_far_behind_is_ended_and_its_tokens_let_go() -> None:
    unread = UnreadBytes(max_of_one=50_000)
    lagging, reading = Bench(unread), Bench(unread)
    for _ in range(1000):
        lagging.send(1)
        reading.send(1)
        await reading.stream.next()
    assert isinstance(lagging.ends[0], Cancelled) and lagging.num_told == 1
    assert unread.num == 0 and reading.ends == []
    with pytest.raises(Cancelled, match="unread"):
        await lagging.stream.next()


async def test_scores_of_a_prompt_that_nobody_reads_count_as_well() -> None:
    bench = Bench(UnreadBytes(max_of_one=50_000))
    scored = [generation_pb2.PromptToken(token_id=1, logprob=-1.0, rank=1) for _ in range(100)]
    for _ in range(100):
        bench.stream.add_prompt(worker_pb2.PromptTokens(request_id="r", tokens=scored))
    assert isinstance(bench.ends[0], Cancelled)


async def test_when_all_together_leave_too_much_unread_who_has_most_of_it_is_ended() -> None:
    unread = UnreadBytes(max_bytes=100_000)
    few, many = Bench(unread), Bench(unread)
    few.send(50)
    many.send(1000)
    assert few.ends == [] and isinstance(many.ends[0], Cancelled)
    few.send(50)
    assert few.ends == []


async def test_what_is_closed_with_tokens_unread_gives_all_of_it_back() -> None:
    unread = UnreadBytes()
    bench = Bench(unread)
    bench.send(MAX_JOINED_TOKENS + 1, num_top=5)
    await bench.stream.next()
    assert unread.num > 0
    bench.stream.close()
    bench.stream.close()
    assert unread.num == 0
