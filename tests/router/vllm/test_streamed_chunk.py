"""vLLM's chunks as tokens of ours."""

from __future__ import annotations

import pytest

from cluster.errors import WorkerLost
from cluster.generation import GeneratedToken
from cluster.wire import token_from_wire
from router.vllm.event_lines import DONE, MAX_EVENT_BYTES, EventLines
from router.vllm.streamed_chunk import chunk_of, tokens_of
from tests.router.vllm import recorded


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_events_are_whole_whatever_pieces_they_come_in(size: int) -> None:
    lines, data = EventLines(), list[bytes]()
    for begin in range(0, len(recorded.STREAM), size):
        data += lines.feed(recorded.STREAM[begin : begin + size])
    assert len(data) == 4 and data[-1] == DONE
    chunks = [chunk_of(each) for each in data[:-1]]
    assert [c.choices[0].token_ids for c in chunks[:2]] == [[7042], [30]]
    assert chunks[1].choices[0].finish_reason == "length"
    assert chunks[2].usage is not None and chunks[2].usage.cached_tokens == 4


def test_an_event_without_end_is_not_kept() -> None:
    lines = EventLines()
    with pytest.raises(WorkerLost, match="more than"):
        for _ in range(MAX_EVENT_BYTES // 2**20 + 1):
            lines.feed(b"x" * 2**20)


def test_alternatives_are_the_likeliest_whichever_token_was_chosen() -> None:
    choice = chunk_of(recorded.LOGPROBS).choices[0]
    tokens = tokens_of(choice, num_choices=2, num_top=2)
    assert tokens.choice == 1
    expected = GeneratedToken(5145, -4.75, ((7042, -0.25), (260, -2.5)))
    assert [token_from_wire(token) for token in tokens.tokens] == [expected]
    only = tokens_of(choice, num_choices=2, num_top=0).tokens[0]
    assert only.logprob == -4.75 and not only.top


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"nonsense", "no chunk"),
        (b'{"choices":[{"index":"a"}]}', "no chunk"),
        (b'{"error":{"message":"EngineDeadError","code":500}}', "EngineDeadError"),
        (b'{"choices":[{"index":2,"token_ids":[1]}]}', "choice 2 of 2"),
        (b'{"choices":[{"index":0,"token_ids":[-1]}]}', "cannot be read"),
        (b'{"choices":[{"index":0,"token_ids":[1],"finish_reason":"abort"}]}', "abort"),
    ],
)
def test_what_is_no_answer_is_the_workers_fault(data: bytes, why: str) -> None:
    with pytest.raises(WorkerLost, match=why):
        for choice in chunk_of(data).choices:
            tokens_of(choice, num_choices=2, num_top=None)


def test_logprobs_that_are_missing_are_not_made_up() -> None:
    choice = chunk_of(b'{"choices":[{"index":0,"token_ids":[1]}]}').choices[0]
    with pytest.raises(WorkerLost, match="logprobs are missing"):
        tokens_of(choice, num_choices=1, num_top=0)
