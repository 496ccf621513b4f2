"""Calls over gRPC that break: another one gets the rest, message for message."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from protos import generation_pb2, inference_pb2
from tests.router.api.told_streams import says_on
from tests.router.grpc_front.test_grpc_inference import failure_of, running_grpc

TEXT = "né 😀 STOP it"


class Told:
    """What a client has got, over all of its calls."""

    def __init__(self) -> None:
        self.texts = ["", ""]
        self.tokens: list[list[tuple[int, float]]] = [[], []]
        self.ends: list[tuple[int, int]] = []
        self.usage: Any = None
        self.ids: list[str] = []

    def take(self, answer: inference_pb2.GenerateResponse) -> None:
        self.ids.append(answer.event_id)
        if answer.HasField("chunk"):
            chunk = answer.chunk
            self.texts[chunk.choice] += chunk.text
            self.tokens[chunk.choice] += [(t.token_id, t.logprob) for t in chunk.tokens]
        elif answer.HasField("choice_end"):
            self.ends.append((answer.choice_end.choice, answer.choice_end.finish_reason))
        else:
            self.usage = answer.complete.usage

    def everything(self) -> tuple[Any, ...]:
        return self.texts, self.tokens, sorted(self.ends), self.usage


@pytest.mark.parametrize("changes", [{}, {"logprobs": 1, "stop": ["STOP"]}], ids=str)
async def test_the_rest_comes_as_if_nothing_had_been(changes: dict[str, Any]) -> None:
    sampling = generation_pb2.SamplingParams(n=2, max_tokens=30, **changes)
    asked = inference_pb2.GenerateRequest(text="Hi", sampling=sampling, resumable=True)
    async with running_grpc(says_on(TEXT), keeps_streams=True) as front:
        whole = Told()
        async for answer in front.stub.Generate(asked):
            whole.take(answer)
        for up_to in range(1, len(whole.ids) + 1):
            told = Told()
            call = front.stub.Generate(asked)
            while len(told.ids) < up_to:
                told.take(await call.read())
            call.cancel()
            rest = inference_pb2.GenerateRequest(last_event_id=told.ids[-1])
            async for answer in front.stub.Generate(rest):
                told.take(answer)
            assert told.everything() == whole.everything()


async def test_what_is_not_kept_is_not_found() -> None:
    async with running_grpc(says_on(TEXT), keeps_streams=True) as front:
        asked = inference_pb2.GenerateRequest(last_event_id=f"{'0' * 32}:-")
        code, reason, _ = await failure_of(front.stub.Generate(asked))
        assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "not_resumable")


async def test_a_call_that_nobody_asked_to_resume_has_no_ids() -> None:
    async with running_grpc(says_on(TEXT), keeps_streams=True) as front:
        asked = inference_pb2.GenerateRequest(text="Hi")
        assert not any([answer.event_id async for answer in front.stub.Generate(asked)])
