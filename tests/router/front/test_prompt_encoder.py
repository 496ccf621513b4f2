"""Which texts and chats are encoded on the event loop, and that they take turns there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from cluster.deadline import Deadline
from cluster.errors import ContextTooLong, DeadlineExceeded, InvalidRequest
from cluster.process.background import cancel
from cluster.process.loop_share import LoopShare
from router.front.caller import NOBODY, Caller
from router.front.generation_request import (
    ChatPrompt,
    Prompt,
    Rendering,
    TextPrompt,
    TokenPrompt,
)
from router.front.inline_limit import MAX_INLINE_BYTES
from router.front.prompt_encoder import PromptEncoder
from router.front.served_model import ServedModel
from router.text_worker.in_process import InProcessText
from tests.router.front_fakes import ByteTokenizer, PlainTemplate, byte_model

BUDGET_S = 0.002
ENCODING_S = 0.001
NEVER = Deadline.never()


class Encoder(PromptEncoder):
    """With the limit that its model has."""

    def __init__(self, model: ServedModel, texts: InProcessText, share: LoopShare) -> None:
        super().__init__(model, texts, share)
        self._limit = model.max_context_tokens

    async def encode(
        self,
        prompt: Prompt,
        deadline: Deadline,
        *,
        max_context_tokens: int | None = None,
        caller: Caller = NOBODY,
    ) -> list[int]:
        limit = self._limit if max_context_tokens is None else max_context_tokens
        return await super().encode(prompt, deadline, max_context_tokens=limit)


class NotingText(InProcessText):
    """Remembers what is sent to it."""

    def __init__(self, model: ServedModel) -> None:
        super().__init__(model)
        self.prompts: list[Prompt] = []

    async def encode(
        self, prompt: TextPrompt | ChatPrompt, max_context_tokens: int, caller: Caller = NOBODY
    ) -> list[int]:
        self.prompts.append(prompt)
        return await super().encode(prompt, max_context_tokens)


async def test_long_texts_and_chats_of_unknown_length_are_encoded_elsewhere() -> None:
    model = replace(byte_model(), context_limit=lambda: 100_000)
    texts = NotingText(model)
    encoder = Encoder(model, texts, LoopShare())
    chat = ChatPrompt((("user", "Hi"),))
    await encoder.encode(TextPrompt("x" * MAX_INLINE_BYTES), NEVER)
    await encoder.encode(TokenPrompt([1] * MAX_INLINE_BYTES), NEVER)
    assert texts.prompts == []
    await encoder.encode(long := TextPrompt("\U000e0001" * (MAX_INLINE_BYTES // 4 + 1)), NEVER)
    assert await encoder.encode(chat, NEVER) == list(b"user:Hi\n")
    assert texts.prompts == [long, chat]


class SilentText(NotingText):
    """Never answers."""

    async def encode(
        self, prompt: TextPrompt | ChatPrompt, max_context_tokens: int, caller: Caller = NOBODY
    ) -> list[int]:
        return await asyncio.get_running_loop().create_future()


async def test_a_text_worker_that_does_not_answer_ends_at_the_deadline() -> None:
    model = byte_model()
    encoder = Encoder(model, SilentText(model), LoopShare())
    with pytest.raises(DeadlineExceeded, match="before the prompt was tokenized"):
        await encoder.encode(ChatPrompt((("user", "Hi"),)), Deadline.after(0.01))


@pytest.mark.parametrize("prompt", [TextPrompt("Hi"), TokenPrompt([72, 105])], ids=["text", "ids"])
async def test_what_waited_for_its_turn_past_its_deadline_is_not_worked_on(prompt: Prompt) -> None:
    tokenizer = SlowTokenizer()
    model = replace(byte_model(), tokenizer=tokenizer)
    share = LoopShare(0.0, clock=tokenizer.clock)
    encoder = Encoder(model, InProcessText(model), share)
    deadline = Deadline.after(ENCODING_S * 1.5, tokenizer.clock)
    in_line = [encoder.encode(TextPrompt("Hi"), deadline) for _ in range(8)]
    told = await asyncio.gather(*in_line, encoder.encode(prompt, deadline), return_exceptions=True)
    assert told[:2] == [[72, 105]] * 2
    assert all(isinstance(each, DeadlineExceeded) for each in told[2:])
    assert tokenizer.now_s == ENCODING_S * 2


async def test_a_text_that_is_encoded_on_the_loop_costs_no_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = byte_model()
    encoder = Encoder(model, NotingText(model), LoopShare())
    monkeypatch.setattr(asyncio.get_running_loop(), "call_at", no_timer)
    assert await encoder.encode(TextPrompt("Hi"), Deadline.after(10)) == list(b"Hi")


def no_timer(*_: object, **__: object) -> None:
    raise AssertionError("a timer for what waits for nothing")


class BriefTemplate(PlainTemplate):
    """Of which it is known how far it goes."""

    def is_short(self, messages: Sequence[tuple[str, str]]) -> bool:
        return len(messages) < 3


@pytest.mark.parametrize(
    ("chat", "is_here"),
    [
        (ChatPrompt((("user", "Hi"),)), True),
        (ChatPrompt((("user", "Hi"),), keep_last=2), True),
        (ChatPrompt((("user", "Hi"),) * 3), False),
        (ChatPrompt((("user", "x" * MAX_INLINE_BYTES),)), False),
        (ChatPrompt((("user", "Hi"),), Rendering(variables={"x": 1})), False),
        (ChatPrompt((("user", "Hi"),), Rendering(continue_final=True)), False),
    ],
)
async def test_a_short_chat_is_encoded_here_where_its_template_is_known_to_be_short(
    chat: ChatPrompt, is_here: bool
) -> None:
    model = replace(byte_model(), context_limit=lambda: 100_000, template=BriefTemplate())
    texts = NotingText(model)
    token_ids = await Encoder(model, texts, LoopShare()).encode(chat, NEVER)
    assert token_ids == await NotingText(model).encode(chat, 100_000)
    assert texts.prompts == ([] if is_here else [chat])


async def test_a_base_model_refuses_a_chat() -> None:
    model = replace(byte_model(), template=None)
    encoder = Encoder(model, InProcessText(model), LoopShare())
    with pytest.raises(InvalidRequest, match="no chat template"):
        await encoder.encode(ChatPrompt((("user", "Hi"),)), NEVER)


async def test_a_prompt_that_cannot_fit_is_refused_without_being_encoded() -> None:
    model = byte_model()
    encoder = Encoder(model, InProcessText(model), LoopShare())
    with pytest.raises(ContextTooLong, match="characters"):
        await encoder.encode(TextPrompt("x" * 100_000), NEVER)
    with pytest.raises(ContextTooLong, match="512"):
        await encoder.encode(TokenPrompt([1] * 512), NEVER)


class SlowTokenizer(ByteTokenizer):
    """Each text takes a millisecond of a clock that nothing else moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        self.now_s += ENCODING_S
        return super().encode(text, add_special)


async def longest_turn_s(encoders: Sequence[Encoder], tokenizer: SlowTokenizer) -> float:
    """Of the loop, while each of them encodes sixteen texts that came at once."""
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        while True:
            start_s = tokenizer.now_s
            await asyncio.sleep(0)
            longest_s = max(longest_s, tokenizer.now_s - start_s)

    watching = asyncio.create_task(watch())
    texts = [each.encode(TextPrompt("Hi"), NEVER) for each in encoders for _ in range(16)]
    assert await asyncio.gather(*texts) == [[72, 105]] * len(texts)
    await cancel([watching])
    return longest_s


async def test_texts_that_come_at_once_hold_the_loop_no_longer_than_one_or_two() -> None:
    tokenizer = SlowTokenizer()
    model = replace(byte_model(), tokenizer=tokenizer)
    share = LoopShare(BUDGET_S, clock=tokenizer.clock)
    encoders = [Encoder(model, InProcessText(model), share) for _ in range(4)]
    longest_s = await longest_turn_s(encoders, tokenizer)
    assert 0 < longest_s <= BUDGET_S + ENCODING_S * 1.5
