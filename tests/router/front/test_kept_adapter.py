"""Which version of an adapter goes on with an answer for another connection."""

import pytest

from cluster.adapter import Adapter
from cluster.process.loop_share import LoopShare
from cluster.sampling import SamplingParams
from router.front.generation_request import GenerationRequest, TextPrompt, Wishes
from router.front.kept_request import KeptRequest
from router.front.pipeline import CompletionPipeline
from router.resume.record import Begun, encoded, read
from router.tenants.tenant import Tenant
from router.text_worker.in_process import InProcessText
from tests.router.api.test_adapters_over_http import ONE, adapted_model
from tests.router.dispatch_bench import time_limits
from tests.router.front_fakes import FakeSource, says


@pytest.mark.parametrize(
    ("written", "digest"),
    [([], ONE.digest), ([Begun("pairing", 0, 2, "b" * 32)], "b" * 32)],
    ids=["not begun", "begun"],
)
async def test_it_is_the_one_that_began_and_before_that_the_one_asked_for(
    written: list[Begun], digest: str
) -> None:
    pipeline = CompletionPipeline(
        model := adapted_model(), FakeSource(says("x")), InProcessText(model)
    )
    asked = GenerationRequest(
        request_id="r",
        tenant=Tenant(),
        prompt=TextPrompt("Hi"),
        wishes=Wishes(sampling=SamplingParams(max_tokens=2), max_tokens=2, adapter="one"),
        limits=time_limits(30.0),
    )
    kept = KeptRequest.of(await pipeline.prepare(asked), model, "chat", b"")
    record = await read([encoded(written)], LoopShare())
    going_on = kept.routed(record, Tenant(), time_limits(30.0), "again")
    assert going_on.adapter == Adapter("one", digest)
