"""What both doors say alike."""

from __future__ import annotations

import grpc
import httpx
import pytest

from cluster.rpc import error_of
from protos import inference_pb2
from router.front.refusals import internal_error
from tests.router.front_fakes import Script, running_front
from tests.router.grpc_front.test_grpc_inference import running_grpc


def breaks() -> Script:
    """A bug of ours, before the first token."""

    async def run(request):
        raise KeyError("a bug")
        yield

    return run


async def test_a_bug_is_told_in_the_same_words_over_http_and_grpc() -> None:
    async with running_front(breaks()) as front, httpx.AsyncClient() as client:
        body = {"prompt": "x", "max_tokens": 1}
        answer = await client.post(f"{front.url}/v1/completions", json=body)
    async with running_grpc(breaks()) as served:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await served.stub.Generate(inference_pb2.GenerateRequest(text="x")).read()
    said = [answer.json()["error"]["message"], error_of(failed.value).message]
    assert said == [internal_error().message] * 2
