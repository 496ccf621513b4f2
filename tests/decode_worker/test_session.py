"""One stream per router: requests and cancellations in, one frame per engine step out."""

import asyncio
import math
from dataclasses import replace

import grpc
import pytest
from msgspec import structs

from cluster.errors import (
    Cancelled,
    InternalError,
    InvalidRequest,
    PairingMismatch,
    SplitserveError,
    WrongWorker,
    status_of,
)
from cluster.generation import EngineLoad, PromptToken
from cluster.identity import WorkerKey
from cluster.process.lifespan import ProcessState
from cluster.rpc import error_of
from cluster.wire import (
    identity_from_wire,
    identity_to_wire,
    prompt_token_from_wire,
    timing_from_wire,
    usage_from_wire,
)
from cluster.worker_identity import WorkerIdentity
from decode_worker.session import RouterSession
from engine.contract.commands import Cancel, Finish, PrefillMode, Submit
from engine.contract.draft_numbers import RequestDrafts
from engine.contract.messages import Frame, PromptScored
from protos import generation_pb2, worker_pb2
from tests.decode_worker.decode_bench import (
    KEY,
    PAIRING,
    PATIENCE_S,
    ended_event,
    router_end,
    token_event,
)


async def test_a_request_without_prefill_workers_is_prefilled_here(bench):
    router = bench.open_session()
    await router.submit("a")
    engine_id = await bench.submitted()
    assert bench.link.told(Submit)[0].request.mode is PrefillMode.LOCAL
    bench.emit(engine_id, 5)
    bench.emit(engine_id, 6, last=True)
    bench.end(engine_id)
    ended = await router.ended("a")
    assert router.tokens("a") == [5, 6]
    assert ended.usage.cached_tokens == 4
    assert (ended.timing.queue_ms, ended.timing.prefill_ms) == (5.0, 50.0)
    assert ended.timing.decode_worker == "decode-a"
    assert not ended.HasField("error")


async def test_a_prediction_goes_to_the_engine_and_what_came_of_guesses_comes_back(bench):
    router = bench.open_session()
    submit = worker_pb2.Submit(
        request_id="a",
        token_ids=[1, 2, 3],
        sampling=generation_pb2.SamplingParams(max_tokens=4),
        cache_root=bytes(16),
        timeout_ms=20_000.0,
        prediction=[7, 8, 9],
    )
    await router.say(submit=submit)
    engine_id = await bench.submitted()
    assert bench.link.told(Submit)[0].request.prediction == [7, 8, 9]
    bench.link.say(Frame(tokens=[token_event(engine_id, token_id) for token_id in (7, 8, 5)]))
    said = ended_event(engine_id)
    usage = structs.replace(said.usage, accepted_prediction_tokens=2, rejected_prediction_tokens=1)
    drafts = RequestDrafts(tried=[3, 2], kept=[2, 1], num_steps=4, num_tokens=7, gain=1.5)
    said = structs.replace(said, usage=usage, drafts=drafts)
    bench.link.say(Frame(ended=[said]))
    ended = await router.ended("a")
    assert router.tokens("a") == [7, 8, 5]  # several of a choice in one step
    assert usage_from_wire(ended.usage) == usage
    timing = timing_from_wire(ended.timing)
    assert (timing.draft_tokens, timing.accepted_draft_tokens) == (5, 3)
    assert timing.draft_tokens_by_position == (3, 2)
    assert timing.accepted_draft_tokens_by_position == (2, 1)
    assert (timing.draft_steps, timing.draft_step_tokens, timing.draft_gain) == (4, 7, 1.5)


async def test_more_of_a_prediction_than_anybody_looks_at_is_refused(bench):
    router = bench.open_session()
    submit = worker_pb2.Submit(
        request_id="a", token_ids=[1], timeout_ms=20_000.0, prediction=[1] * 8193
    )
    await router.say(submit=submit)
    assert (await router.ended("a")).error.code == "invalid_request"


async def refusal(call) -> SplitserveError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(PATIENCE_S):
            while await call.read() is not grpc.aio.EOF:
                pass
    return error_of(caught.value)


@pytest.mark.parametrize(
    ("meant", "error", "words"),
    [
        (WorkerIdentity(WorkerKey("llama-7", "incarnation-9"), PAIRING), WrongWorker, "llama-7"),
        (WorkerIdentity(WorkerKey("decode-a", "older"), PAIRING), WrongWorker, "incarnation-1"),
        (WorkerIdentity(KEY, replace(PAIRING, weights_digest="zz")), PairingMismatch, "'zz'"),
        (WorkerIdentity(KEY, replace(PAIRING, protocol_version=99)), PairingMismatch, "99"),
    ],
    ids=["address-reused", "restarted", "another-model", "another-protocol"],
)
async def test_a_session_that_means_another_process_or_model_is_refused_before_any_request(
    bench, meant, error, words
):
    router = router_end(bench.channel, meant)
    await router.call.write(worker_pb2.RouterMessage(open=identity_to_wire(meant)))
    refused = await refusal(router.call)
    assert isinstance(refused, error)
    assert words in refused.message
    assert not bench.link.told(Submit)


async def test_a_session_says_whom_it_means_first_and_once(bench):
    silent, twice = bench.open_session(), bench.open_session()
    await silent.call.write(worker_pb2.RouterMessage(submit=worker_pb2.Submit(request_id="a")))
    assert isinstance(await refusal(silent.call), InvalidRequest)
    await twice.say(open=identity_to_wire(twice.meant))
    assert isinstance(await refusal(twice.call), InvalidRequest)
    assert not bench.link.told(Submit)


async def test_bytes_that_are_no_message_end_a_session_as_the_router_s_fault(bench):
    session = bench.channel.stream_stream("/splitserve.worker.v1.DecodeWorker/Session")()
    await session.write(b"\xff" * 1000)
    assert isinstance(await refusal(session), InvalidRequest)


async def test_a_worker_says_who_it_is_with_its_first_frame(bench):
    router = bench.open_session()
    await router.call.write(worker_pb2.RouterMessage(open=identity_to_wire(router.meant)))
    frame = await router.call.read()
    assert identity_from_wire(frame.opened) == WorkerIdentity(KEY, PAIRING)


async def test_a_bug_in_a_session_ends_it_with_an_error_and_cancels_its_requests(
    bench, monkeypatch
):
    router = bench.open_session()
    await router.submit("a")
    engine_id = await bench.submitted()
    monkeypatch.setattr(RouterSession, "_cancel", lambda session, request_id: 1 / 0)
    await router.cancel("a")
    assert isinstance(await refusal(router.call), InternalError)
    assert (await bench.link.wait_for(Cancel)).request_id == engine_id


async def test_one_step_of_many_requests_is_one_frame(bench):
    router = bench.open_session()
    for name in "abc":
        await router.submit(name)
    await bench.submitted(3)
    engine_ids = [submit.request.request_id for submit in bench.link.told(Submit)]
    bench.link.say(
        Frame(
            tokens=[token_event(engine_id, 9, last=True) for engine_id in engine_ids],
            ended=[ended_event(engine_ids[0])],
            load=EngineLoad(num_running=3),
        )
    )
    frame = await router.next_frame()
    assert [tokens.request_id for tokens in frame.tokens] == ["a", "b", "c"]
    assert frame.tokens[0].finish_reason == generation_pb2.FINISH_REASON_LENGTH
    assert [ended.request_id for ended in frame.ended] == ["a"]
    assert frame.load.num_running == 3


async def test_sessions_see_only_their_own_requests(bench):
    one, two = bench.open_session(), bench.open_session()
    await one.submit("a")
    first = await bench.submitted(1)
    await two.submit("a")
    second = await bench.submitted(2)
    bench.link.say(Frame(tokens=[token_event(second, 2), token_event(first, 1)]))
    assert (await one.next_frame()).tokens[0].tokens[0].token_id == 1
    assert (await two.next_frame()).tokens[0].tokens[0].token_id == 2


async def test_a_broken_session_cancels_all_of_its_requests_and_no_others(bench):
    broken, other = bench.open_session(), bench.open_session()
    await broken.submit("a")
    await broken.submit("b")
    await bench.submitted(2)
    await other.submit("c")
    await bench.submitted(3)
    broken.call.cancel()
    await bench.link.wait_for(Cancel, 2)
    ids = [submit.request.request_id for submit in bench.link.told(Submit)]
    assert {cancel.request_id for cancel in bench.link.told(Cancel)} == set(ids[:2])


async def test_a_router_that_closes_its_side_ends_the_session(bench):
    router = bench.open_session()
    await router.submit("a")
    engine_id = await bench.submitted()
    await router.call.done_writing()
    assert (await bench.link.wait_for(Cancel)).request_id == engine_id


async def test_a_cancelled_request_ends_once_with_its_error(bench):
    router = bench.open_session()
    await router.submit("a")
    engine_id = await bench.submitted()
    await router.cancel("a")
    assert (await bench.link.wait_for(Cancel)).request_id == engine_id
    bench.end(engine_id, code=status_of(Cancelled("")).code, message="cancelled")
    bench.end(engine_id, code=status_of(Cancelled("")).code, message="cancelled")
    assert (await router.ended("a")).error.code == "cancelled"
    await router.submit("b")
    bench.end(await bench.submitted(2))
    await router.ended("b")
    assert sum(len(frame.ended) for frame in router.frames) == 2


async def test_a_finished_request_ends_once_with_usage_and_timing_and_no_error(bench):
    router = bench.open_session()
    await router.submit("a")
    engine_id = await bench.submitted()
    bench.emit(engine_id, 5)
    await router.next_frame()
    await router.finish("a", 0)
    assert await bench.link.wait_for(Finish) == Finish(engine_id, [0])
    bench.end(engine_id)
    ended = await router.ended("a")
    assert not ended.HasField("error")
    assert (ended.usage.cached_tokens, ended.timing.prefill_ms) == (4, 50.0)
    registry = bench.worker.metrics.registry
    requests = "splitserve_worker_requests_total"
    assert registry.get_sample_value(requests, {"outcome": "ok"}) == 1
    await router.finish("a", 0)  # too late: nobody is left to hear it
    await router.submit("b")
    bench.end(await bench.submitted(2))
    await router.ended("b")
    assert len(bench.link.told(Finish)) == 1


async def test_a_request_id_that_is_running_already_is_refused(bench):
    router = bench.open_session()
    await router.submit("a")
    await bench.submitted()
    await router.submit("a")
    assert (await router.ended("a")).error.code == "invalid_request"
    assert len(bench.link.told(Submit)) == 1


async def test_a_draining_worker_refuses_new_requests_and_finishes_old_ones(bench):
    router = bench.open_session()
    await router.submit("a")
    engine_id = await bench.submitted()
    bench.worker.lifespan.advance(ProcessState.DRAINING)
    await router.submit("b")
    assert (await router.ended("b")).error.code == "draining"
    bench.end(engine_id)
    assert not (await router.ended("a")).HasField("error")
    assert await bench.worker.lifespan.wait_idle(5)


async def test_when_the_engine_dies_every_request_ends_with_worker_lost(bench):
    router = bench.open_session()
    for name in "abc":
        await router.submit(name)
    await bench.submitted(3)
    bench.link.die("SIGKILL")
    frame = await router.next_frame()
    assert sorted(ended.request_id for ended in frame.ended) == ["a", "b", "c"]
    assert {ended.error.code for ended in frame.ended} == {"worker_lost"}
    await router.submit("d")
    assert (await router.ended("d")).error.code == "worker_lost"


async def test_a_closing_worker_writes_what_is_waiting(bench):
    router = bench.open_session()
    await router.submit("a")
    engine_id = await bench.submitted()
    bench.link.say(Frame(tokens=[token_event(engine_id, 4)], ended=[ended_event(engine_id)]))
    assert await bench.worker.lifespan.wait_idle(5)
    await bench.service.close()
    assert not (await router.ended("a")).HasField("error")


async def test_metrics_count_requests_by_outcome(bench):
    router = bench.open_session()
    await router.submit("a")
    bench.end(await bench.submitted(1))
    await router.ended("a")
    await router.submit("b")
    bench.end(await bench.submitted(2), code="deadline_exceeded", message="20000 ms")
    await router.ended("b")
    registry = bench.worker.metrics.registry
    counts = {
        outcome: registry.get_sample_value("splitserve_worker_requests_total", {"outcome": outcome})
        for outcome in ("ok", "deadline_exceeded")
    }
    assert counts == {"ok": 1, "deadline_exceeded": 1}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"timeout_ms": math.nan}, "invalid_request"),
        ({"timeout_ms": math.inf}, "invalid_request"),
        ({"timeout_ms": -1.0}, "invalid_request"),
        ({"timeout_ms": 0.0}, "invalid_request"),
        ({"token_ids": [1] * 129}, "context_length_exceeded"),
        ({"token_ids": [1] * 10_000_000}, "context_length_exceeded"),
        ({"prefill": [worker_pb2.PrefillTarget(worker_id="p")] * 17}, "invalid_request"),
        (
            {"sampling": generation_pb2.SamplingParams(stop_token_ids=[1] * 5000)},
            "invalid_request",
        ),
    ],
    ids=["nan", "inf", "negative", "zero", "too-long", "ten-million", "targets", "stops"],
)
async def test_what_cannot_be_served_is_refused_before_the_engine_sees_it(bench, change, code):
    good = {"token_ids": [1], "cache_root": bytes(16), "timeout_ms": 20_000.0}
    router = bench.open_session()
    await router.say(submit=worker_pb2.Submit(request_id="a", **good | change))
    assert (await router.ended("a")).error.code == code
    assert not bench.link.told(Submit)
    assert await bench.worker.lifespan.wait_idle(1)
    await router.submit("b")
    await bench.submitted()


@pytest.mark.parametrize("asked", [{}, {"asked_s": 30.0}])
async def test_the_limit_that_the_client_named_is_passed_on_to_the_engine(bench, asked):
    router = bench.open_session()
    good = {"token_ids": [1], "cache_root": bytes(16), "timeout_ms": 20_000.0}
    await router.say(submit=worker_pb2.Submit(request_id="a", **good | asked))
    await bench.submitted()
    assert bench.link.told(Submit)[0].request.asked_s == asked.get("asked_s")


async def test_a_request_id_of_a_megabyte_is_refused(bench):
    router = bench.open_session()
    await router.submit("x" * 1_000_000)
    assert (await router.ended("x" * 1_000_000)).error.code == "invalid_request"


async def test_words_about_unknown_requests_and_empty_messages_change_nothing(bench):
    router = bench.open_session()
    for request_id in ("", "nobody", "\u2603" * 1000):
        await router.cancel(request_id)
        await router.say(finish=worker_pb2.Finish(request_id=request_id, choices=[0, 2**31]))
    await router.say()
    await router.submit("a")
    bench.end(await bench.submitted())
    await router.ended("a")
    assert not bench.link.told(Cancel)


async def test_scores_of_a_prompt_that_is_computed_here_are_told(bench):
    router = bench.open_session()
    await router.submit("a", prompt_logprobs=1)
    engine_id = await bench.submitted()
    assert bench.link.told(Submit)[0].request.mode is PrefillMode.LOCAL
    scores = [PromptToken(7, -0.5, 1, ((7, -0.5),)), PromptToken(8, -2.0, 3)]
    bench.link.say(Frame(scored=[PromptScored(engine_id, 1, scores)]))
    (told,) = (await router.next_frame()).prompts
    assert (told.request_id, told.first_index) == ("a", 1)
    assert [prompt_token_from_wire(token) for token in told.tokens] == scores
