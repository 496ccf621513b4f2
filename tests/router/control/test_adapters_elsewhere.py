"""Orders about adapters, where other engines' servers are members."""

from __future__ import annotations

from dataclasses import replace

from cluster.pairing import VLLM
from tests.router.control.test_adapter_orders import LOAD, OLD, THIRD, fleet
from tests.router.fake_decode_worker import until
from tests.router.planes import PAIRING, prefill_member


async def test_another_engines_server_is_told_nothing_whenever_it_joins() -> None:
    """The fleet's token goes with every order."""
    theirs = [
        prefill_member(
            f"vllm-p:{number}",
            address=f"vllm-p:{number}",
            pairing=replace(PAIRING, weights=VLLM),
            version="vLLM 0.32.0",
        )
        for number in (1, 2)
    ]
    async with fleet() as (plane, workers):
        await plane.store.join(theirs[0])
        answer = await plane.adapter_orders.load(LOAD)
        assert [each.worker_id for each in answer.outcomes] == [OLD.worker_id]
        for newcomer in (theirs[1], THIRD):
            await plane.store.join(newcomer)
        await until(lambda: workers.of(THIRD) == ["+one"])
        assert [workers.of(each) for each in theirs] == [[], []]
