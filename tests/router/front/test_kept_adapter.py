"""Which version of an adapter goes on with an answer for another connection, and for which keys."""

import pytest
from prometheus_client import CollectorRegistry

from cluster.adapter import Adapter
from cluster.errors import NotAllowed
from cluster.process.loop_share import LoopShare
from cluster.sampling import SamplingParams
from router.dispatch.first_part import FirstPart
from router.front.generation_request import GenerationRequest, TextPrompt, Wishes
from router.front.kept_request import KeptRequest
from router.front.pipeline import CompletionPipeline
from router.front.resumption import Resumable, Resumption
from router.resume.kept_answers import KeptAnswers
from router.resume.record import Begun, encoded, read
from router.telemetry.resume_metrics import ResumeMetrics
from router.tenants.tenant import Tenant
from router.text_worker.in_process import InProcessText
from tests.manual_clock import ManualClock
from tests.router.api.test_adapters_over_http import ONE, adapted_model
from tests.router.dispatch_bench import time_limits
from tests.router.front_fakes import FakeSource, says
from tests.router.resume_bench import LIMITS


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


@pytest.mark.parametrize("adapter", ["", "one"])
async def test_only_a_key_that_could_have_begun_an_answer_goes_on_with_it(adapter: str) -> None:
    model = adapted_model()
    pipeline = CompletionPipeline(model, FakeSource(says("x")), InProcessText(model))
    answers = KeptAnswers(LIMITS, ManualClock())
    metrics = ResumeMetrics(CollectorRegistry())
    resumption = Resumption(model, answers, None, share=pipeline.share, metrics=metrics)
    able, unable = (model.name, "one") if not adapter else ("one", model.name)
    asked = GenerationRequest(
        request_id="r",
        tenant=Tenant("acme", models=(able, "others")),
        prompt=TextPrompt("Hi"),
        wishes=Wishes(sampling=SamplingParams(max_tokens=2), max_tokens=2, adapter=adapter),
        limits=time_limits(30.0),
    )
    prepared = await pipeline.prepare(asked)
    begun = resumption.begin(prepared, asked.tenant, door="chat", told_as=b"")
    begun.keeper.begun(FirstPart("pairing", 0, ONE.digest if adapter else ""), 2)

    async def resume(*models: str) -> Resumable:
        tenant = Tenant("acme", models=models)
        event_id = begun.place.event_id
        return await resumption.resume(event_id, tenant, "r2", time_limits(30.0), door="chat")

    with pytest.raises(NotAllowed, match=f"not for {able}"):
        await resume(unable)
    assert begun.keeper.is_kept  # whoever has it goes on with it
    assert (await resume(able)).prepared.routed.adapter == prepared.routed.adapter
    assert not begun.keeper.is_kept
    assert (await resume()).keeper.is_kept
