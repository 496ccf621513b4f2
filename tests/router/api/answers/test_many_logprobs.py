"""Logprobs of an answer: put into words as they come, the same in one piece as in a stream, and
bounded where the answer is held until its end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from typing import Any, cast

import httpx
import pytest
from msgspec.structs import replace

from cluster.generation import FinishReason, GeneratedToken, Timing, Usage
from cluster.process.background import cancel
from cluster.process.loop_share import LoopShare
from router.api.answers.chat_shape import ChatShape
from router.api.answers.completion_shape import CompletionShape, CompletionWishes
from router.api.answers.shape import AnswerShape, Envelope
from router.api.answers.tally import Tally
from router.api.generation import Generation
from router.api.http.exchange import Exchange
from router.api.reading.answer_size import MAX_ANSWER_LOGPROBS
from router.api.reading.plan import AnswerOptions
from router.dispatch.stream import Completed
from router.front.fan_out import IndexedEvent
from router.text.choice import MAX_DELTA_LOGPROBS, ChoiceText, ShownToken, TextDelta
from router.text.choice_count import ChoiceCount
from router.text.stop_strings import StopAutomaton
from tests.router.front_fakes import (
    EOS,
    MODEL,
    ByteStream,
    ByteTokenizer,
    Front,
    running_front,
    says,
    scores_and_says,
)

NUM_TOKENS, NUM_CHOICES, TOP = 40, 4, 20
NOT_ASKED = AnswerOptions(stream=False, include_usage=False, continuous_usage=False, timings=False)


class NotingTokenizer(ByteTokenizer):
    """Counts the tokens that are named in each turn of the loop."""

    def __init__(self) -> None:
        self.named: list[int] = [0]

    def token_text(self, token_id: int) -> str:
        self.named[-1] += 1
        return super().token_text(token_id)

    async def note_turns(self) -> None:
        while True:
            self.named.append(0)
            await asyncio.sleep(0)


class HeldReply:
    """An exchange that keeps what it is given, and never waits."""

    def __init__(self) -> None:
        self.body = b""
        self.events: list[bytes] = []
        self.clock = time.monotonic

    async def reply(self, body: bytes) -> None:
        self.body = body

    async def start_stream(self) -> None:
        pass

    def takes_events(self) -> bool:
        return False

    async def send_event(self, data: bytes) -> None:
        self.events.append(data)

    async def end_stream(self) -> None:
        pass


async def all_at_once() -> AsyncGenerator[IndexedEvent, None]:
    """Every delta is there already: nothing lets the loop go but who reads."""
    top = tuple((65 + rank, -0.5 - rank) for rank in range(TOP))
    for place in range(NUM_TOKENS):
        reason = FinishReason.LENGTH if place == NUM_TOKENS - 1 else None
        for choice in range(NUM_CHOICES):
            token = ShownToken(GeneratedToken(97, -0.5, top), place)
            yield 0, TextDelta(choice, "a", (token,), reason, place + 1)
    yield 0, Completed(Usage(1, NUM_TOKENS * NUM_CHOICES, 0), Timing())


async def let_go_at_once() -> AsyncGenerator[IndexedEvent, None]:
    """Every choice is held back to its last token: all but the first are without text."""
    top = tuple((65 + rank, -0.5 - rank) for rank in range(TOP))
    for choice in range(NUM_CHOICES):
        count = ChoiceCount()
        count.gave(NUM_TOKENS)
        text = ChoiceText(choice, count, ByteStream(), StopAutomaton(["ab"]), keep_tokens=True)
        ids = [97] + [EOS] * (NUM_TOKENS - 1)
        tokens = [GeneratedToken(token_id, -0.5, top) for token_id in ids]
        assert not list(text.push(tokens, None))
        for delta in text.push([], FinishReason.LENGTH):
            yield 0, delta
    yield 0, Completed(Usage(1, NUM_TOKENS * NUM_CHOICES, 0), Timing())


def generation_of(
    kind: str, tokenizer: ByteTokenizer, events: AsyncGenerator[IndexedEvent, None], *, stream: bool
) -> Generation:
    wishes = CompletionWishes(logprobs=TOP, prompt_logprobs=None, num_choices=NUM_CHOICES)
    chat = ChatShape(tokenizer, logprobs=True, prompt_logprobs=None)
    shape: AnswerShape = chat if kind == "chat" else CompletionShape(tokenizer, wishes, echoes=())
    return Generation(
        begin=lambda taker: events,
        shape=shape,
        envelope=Envelope(id="x", model=MODEL, fingerprint="fp"),
        tally=Tally([1]),
        num_choices=NUM_CHOICES,
        num_prompts=1,
        options=replace(NOT_ASKED, stream=stream, include_usage=stream),
        share=LoopShare(0.0),
    )


@pytest.mark.parametrize("kind", ["chat", "completion"])
@pytest.mark.parametrize("stream", [False, True], ids=["in one piece", "stream"])
async def test_however_many_tokens_are_let_go_no_turn_puts_many_into_words(
    kind: str, stream: bool
) -> None:
    tokenizer, held = NotingTokenizer(), HeldReply()
    noting = asyncio.ensure_future(tokenizer.note_turns())
    generation = generation_of(kind, tokenizer, let_go_at_once(), stream=stream)
    await generation.answer(cast(Exchange, held))
    await cancel([noting])
    bodies = [json.loads(each) for each in held.events or [held.body]]
    assert sum(tokenizer.named) == NUM_TOKENS * NUM_CHOICES * (1 + TOP)
    assert max(tokenizer.named) <= 2 * MAX_DELTA_LOGPROBS
    assert bodies[-1]["usage"]["completion_tokens"] == NUM_TOKENS * NUM_CHOICES


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_no_turn_of_the_loop_puts_more_than_a_delta_into_words(kind: str) -> None:
    tokenizer = NotingTokenizer()
    generation = generation_of(kind, tokenizer, all_at_once(), stream=False)
    held = HeldReply()
    noting = asyncio.ensure_future(tokenizer.note_turns())
    await generation.answer(cast(Exchange, held))
    await cancel([noting])
    assert len(json.loads(held.body)["choices"]) == NUM_CHOICES
    assert sum(tokenizer.named) == NUM_TOKENS * NUM_CHOICES * (1 + TOP)
    assert max(tokenizer.named) <= 2 * (1 + TOP)


async def post(front: Front, path: str, body: dict[str, object]) -> httpx.Response:
    async with httpx.AsyncClient() as http:
        return await http.post(f"{front.url}{path}", json={"model": MODEL, **body})


async def streamed_logprobs(front: Front, path: str, body: dict[str, object]) -> Any:
    """By choice, every list of all chunks joined."""
    text = (await post(front, path, {**body, "stream": True})).text
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    joined: dict[int, dict[str, list[Any]]] = {}
    for choice in [choice for line in lines for choice in json.loads(line)["choices"]]:
        of_choice = joined.setdefault(choice["index"], {})
        for name, items in (choice["logprobs"] or {}).items():
            if items is not None:
                of_choice.setdefault(name, []).extend(items)
    return [joined[index] for index in sorted(joined)]


MESSAGES = [{"role": "user", "content": "a"}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES, "logprobs": True, "top_logprobs": 2}),
        ("/v1/chat/completions", {"messages": MESSAGES, "logprobs": True}),
        ("/v1/completions", {"prompt": "her", "logprobs": 2}),
        ("/v1/completions", {"prompt": "her", "logprobs": 2, "echo": True}),
    ],
    ids=["chat", "chat without alternatives", "completion", "echo"],
)
async def test_an_answer_in_one_piece_tells_the_logprobs_of_a_stream(
    path: str, body: dict[str, object]
) -> None:
    body = {**body, "n": 2, "max_tokens": 5, "seed": 1}
    async with running_front(scores_and_says("héy")) as front:
        answer = (await post(front, path, body)).json()
        streamed = await streamed_logprobs(front, path, body)
    told = [choice["logprobs"] for choice in answer["choices"]]
    if "messages" in body:
        assert [each.pop("refusal") for each in told] == [None, None]
    assert told == streamed
    assert len(told) == 2


@pytest.mark.parametrize(
    ("change", "is_allowed"),
    [
        ({"max_tokens": 300, "n": 16}, True),
        ({"max_tokens": 400_000, "n": 1}, False),
        ({"max_tokens": 12_484, "n": 1}, False),
        ({"max_tokens": 781, "n": 16}, False),
        ({"max_tokens": 781, "n": 16, "top_logprobs": 0}, None),
        ({"max_tokens": 781, "n": 16, "stream": True}, None),
    ],
)
async def test_the_logprobs_of_an_answer_in_one_piece_are_bounded_together(
    change: dict[str, object], is_allowed: bool | None
) -> None:
    """None: refused for the small context of this model, and for nothing else."""
    body = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 20, **change}
    async with running_front(says("ok")) as front:
        answer = await post(front, "/v1/chat/completions", body)
    if is_allowed:
        assert answer.status_code == 200
        return
    error = answer.json()["error"]
    assert error["param"] == ("logprobs" if is_allowed is False else "max_tokens")
    assert (str(MAX_ANSWER_LOGPROBS) in error["message"]) == (is_allowed is False)


async def test_a_length_that_nobody_asked_for_is_cut_to_what_one_answer_may_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("router.api.reading.answer_size.MAX_ANSWER_LOGPROBS", 100)
    body = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 4, "n": 2}
    async with running_front(says("x" * 50)) as front:
        answer = await post(front, "/v1/chat/completions", body)
    choices = answer.json()["choices"]
    assert [len(choice["message"]["content"]) for choice in choices] == [10, 10]
