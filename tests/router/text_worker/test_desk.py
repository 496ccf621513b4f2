"""What a text worker makes of bodies with many inputs, and what the event loop makes of that."""

from __future__ import annotations

import array
import asyncio
from dataclasses import replace

import msgspec
import pytest

from cluster.errors import ContextTooLong, InvalidRequest
from cluster.models.pooling import Pooling, PoolingKind
from protos import inference_pb2
from router.front.pooling_checks import MAX_INPUT_TOKENS
from router.front.text_work import Door
from router.grpc_front import pooled_reading
from router.text_worker import desk as desk_module
from router.text_worker.child import _ids, _reply
from router.text_worker.desk import TextDesk
from router.text_worker.limits import TextLimits
from router.text_worker.messages import (
    LENGTHS,
    EncodeText,
    Ids,
    ReadLarge,
    Refusal,
    Task,
    pack_refusal,
    pack_task,
    to_router,
)
from router.text_worker.text_process import IDS_AT_ONCE, _read_body
from tests.router.front_fakes import pooling_model

EMBEDS = Pooling(kind=PoolingKind.LAST, generates=True, dimensions=())
CONTEXT_TOKENS = 1 << 20
HALF = MAX_INPUT_TOKENS // 2


def packed(ids: list[list[int]]) -> bytes:
    lists = [inference_pb2.EmbedInput(tokens=inference_pb2.TokenIds(ids=each)) for each in ids]
    return inference_pb2.EmbedRequest(inputs=lists).SerializeToString()


@pytest.mark.parametrize(
    ("door", "body"),
    [
        (Door.EMBEDDINGS, msgspec.json.encode({"input": [[1] * HALF] * 3})),
        (Door.GRPC_EMBED, packed([[1] * HALF] * 3)),
    ],
)
def test_token_ids_are_counted_before_anything_is_made_of_them(
    door: Door, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr(desk_module, "encode_prompt", lambda *given, **more: made.append(given))
    monkeypatch.setattr(pooled_reading, "_prompt", lambda *given: made.append(given))
    with pytest.raises(InvalidRequest, match=f"3 inputs have {3 * HALF} tokens; allowed: 300000"):
        TextDesk(pooling_model(EMBEDS)).read(door, body, CONTEXT_TOKENS)
    assert made == []


def test_tokens_of_texts_are_counted_while_they_are_made() -> None:
    made = []
    model = pooling_model(EMBEDS)

    class Counted:
        def encode(self, text: str, *, add_special: bool) -> list[int]:
            made.append(text)
            return [1] * HALF

    desk = TextDesk(replace(model, tokenizer=Counted()))  # type: ignore[arg-type]
    body = msgspec.json.encode({"input": ["a"] * 100})
    with pytest.raises(InvalidRequest, match="the first 3 inputs have"):
        desk.read(Door.EMBEDDINGS, body, CONTEXT_TOKENS)
    assert len(made) == 3


def test_texts_of_pairs_that_outgrow_their_body_are_told_before_they_are_encoded() -> None:
    told: list[int] = []
    scores = pooling_model(Pooling(kind=PoolingKind.YES_NO, answer_ids=(1, 2)))
    desk = TextDesk(scores, on_more=told.append)
    query, documents = "q" * 300, ["d"] * 300
    body = msgspec.json.encode({"query": query, "documents": documents})
    read = desk.read(Door.RERANK, body, CONTEXT_TOKENS)
    assert told == [read.num_chars] and read.num_chars > 300 * 300
    head, _payload = _ids(read)
    ids = to_router(head[LENGTHS.size :])
    assert isinstance(ids, Ids) and ids.num_chars == read.num_chars
    plain = TextDesk(pooling_model(EMBEDS), on_more=told.append)
    plain.read(Door.EMBEDDINGS, msgspec.json.encode({"input": ["x" * 100]}), CONTEXT_TOKENS)
    assert len(told) == 1


def test_a_refusal_says_how_much_was_encoded_before_it() -> None:
    desk = TextDesk(pooling_model(EMBEDS))
    body = msgspec.json.encode({"input": ["hello", "h" * 2000, "hello"]})
    with pytest.raises(ContextTooLong) as caught:
        desk.read(Door.EMBEDDINGS, body, 10)
    packed = pack_refusal(caught.value, desk.num_chars)
    refusal = to_router(packed[LENGTHS.size :])
    assert isinstance(refusal, Refusal) and refusal.num_chars == 2005
    with pytest.raises(InvalidRequest):
        desk.read(Door.EMBEDDINGS, b"{}", 10)
    assert desk.num_chars == 0


def test_what_is_no_body_is_not_charged_what_the_body_before_it_was(
    same_limits_after: None,
) -> None:
    desk, endless = TextDesk(pooling_model(EMBEDS)), TextLimits(1 << 40, cpu_s=1_000_000)

    def refusal_of(task: Task, body: bytes = b"") -> Refusal:
        packed = pack_task(task, len(body))
        head, _ = _reply(desk, endless, packed[LENGTHS.size :], body)
        refusal = to_router(head[LENGTHS.size :])
        assert isinstance(refusal, Refusal)
        return refusal

    long = msgspec.json.encode({"input": ["h" * 2000]})
    assert refusal_of(ReadLarge(Door.EMBEDDINGS, 10), long).num_chars == 2000
    assert refusal_of(EncodeText("h" * 2000, False, 10)).num_chars == 0


async def test_the_loop_rests_between_inputs_of_which_many_ids_become_lists() -> None:
    num_turns = 0

    async def count() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    num_prompts = 20
    ids = Ids((IDS_AT_ONCE,) * num_prompts, (None,) * num_prompts)
    payload = array.array("i", range(IDS_AT_ONCE)).tobytes() * num_prompts
    counting = asyncio.create_task(count())
    read = await _read_body(ids, payload)
    counting.cancel()
    assert [each.token_ids[-1] for each in read.prompts] == [IDS_AT_ONCE - 1] * num_prompts
    assert num_turns >= num_prompts // 2 - 1


@pytest.mark.parametrize(
    ("door", "body", "param"),
    [
        (Door.EMBEDDINGS, {"input": ["a"] * 3}, "input"),
        (Door.SCORE, {"text_1": "a", "text_2": ["b"] * 3}, "text_2"),
        (Door.RERANK, {"query": "a", "documents": ["b"] * 3}, "documents"),
    ],
)
def test_too_many_tokens_are_said_of_the_field_that_has_the_texts(
    door: Door, body: dict[str, object], param: str
) -> None:
    class Half:
        def encode(self, text: str, *, add_special: bool) -> list[int]:
            return [1] * HALF

    desk = TextDesk(replace(pooling_model(EMBEDS), tokenizer=Half()))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="the first 3 inputs have") as refused:
        desk.read(door, msgspec.json.encode(body), CONTEXT_TOKENS)
    assert refused.value.param == param
