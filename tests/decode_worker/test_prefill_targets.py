"""Which of the prefill workers that a request names is asked, and with whom a connection stands."""

from dataclasses import replace

from engine.contract.commands import Connect, Disconnect, PrefillLocally, Seed
from engine.contract.commands import Submit as EngineSubmit
from tests.decode_worker.decode_bench import PAIRING
from tests.decode_worker.scripted_prefill import running_prefill


async def test_a_worker_that_does_not_pair_is_passed_over(bench, far):
    other = replace(PAIRING, weights_digest="zz")
    async with running_prefill("prefill-other", other) as misfit:
        router = bench.open_session()
        await router.submit("a", misfit.target, far.target)
        bench.reserve(await bench.submitted())
        await far.stream()
        assert misfit.streams == []
        failures = bench.worker.metrics.registry.get_sample_value(
            "splitserve_worker_kv_transfer_failures_total", {"reason": "pairing_mismatch"}
        )
        assert failures == 1


async def test_a_restarted_worker_is_passed_over(bench, near):
    stale = near.target
    stale.incarnation = "an-older-process"
    router = bench.open_session()
    await router.submit("a", stale)
    bench.reserve(await bench.submitted())
    await bench.link.wait_for(PrefillLocally)
    assert near.streams == []


async def test_a_request_with_an_outdated_target_does_not_cut_off_the_others(bench, near):
    router = bench.open_session()
    await router.submit("a", near.target)
    bench.reserve(await bench.submitted(1))
    stream = await near.stream()
    outdated = near.target
    outdated.incarnation = "an-older-process"
    await router.submit("b", outdated)
    bench.reserve(await bench.submitted(2))
    await bench.link.wait_for(PrefillLocally)
    stream.say_first_token(7)
    await bench.link.wait_for(Seed)
    assert near.incarnation not in [d.incarnation for d in bench.link.told(Disconnect)]
    assert not stream.released.is_set()


async def test_a_new_process_of_a_worker_replaces_the_old_one(bench, near):
    async with running_prefill("prefill-near", PAIRING) as reborn:
        reborn.incarnation = "a-newer-process"
        router = bench.open_session()
        for count, prefill in enumerate((near, reborn), start=1):
            await router.submit(f"r{count}", prefill.target)
            bench.reserve(await bench.submitted(count))
            await prefill.stream()
        assert (await bench.link.wait_for(Disconnect)).incarnation == near.incarnation
        await bench.link.wait_for(PrefillLocally)


async def test_an_address_where_nobody_listens_costs_only_a_fallback(bench, near):
    await near.die()
    router = bench.open_session()
    await router.submit("a", near.target)
    bench.reserve(await bench.submitted())
    await bench.link.wait_for(PrefillLocally)


async def test_one_handshake_serves_many_requests(bench, near):
    router = bench.open_session()
    for name in "abc":
        await router.submit(name, near.target)
    await bench.submitted(3)
    for submit in bench.link.told(EngineSubmit):
        bench.reserve(submit.request.request_id)
    await near.stream(3)
    assert near.num_handshakes == 1
    assert len(bench.link.told(Connect)) == 1
