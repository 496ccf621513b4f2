"""A handoff whose first token is the last one, or will be: nothing but that token is waited for."""

from engine.contract.commands import PrefillLocally, Seed
from tests.decode_worker.decode_bench import outcomes_of
from tests.decode_worker.scripted_prefill import released


async def test_after_a_first_token_that_is_the_last_one_nothing_else_is_waited_for(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    engine_id = await bench.submitted()
    bench.reserve(engine_id)
    stream = await near.stream()
    stream.say_first_token(7, is_last=True)
    stream.say_done()
    await bench.link.wait_for(Seed)
    await released(stream)
    bench.emit(engine_id, 7, last=True)
    bench.end(engine_id)
    ended = await router.ended("a")
    assert ended.timing.prefill_worker == "prefill-near"
    assert (ended.timing.prefill_ms, ended.timing.kv_bytes) == (40.0, 0)
    assert outcomes_of(bench) == {"first": 1}


async def test_an_engine_whose_rules_go_on_behind_a_last_token_computes_the_rest(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    bench.reserve(await bench.submitted())
    (await near.stream()).say_first_token(7, is_last=True)
    await bench.link.wait_for(PrefillLocally)
    kinds = [type(command) for command in bench.link.commands]
    assert kinds.index(Seed) < kinds.index(PrefillLocally)


async def test_for_a_single_token_no_block_is_asked_for(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target, max_tokens=1)
    bench.reserve(await bench.submitted())
    assert (await near.stream()).request.first_block == 2
