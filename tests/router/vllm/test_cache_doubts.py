"""What a decode server may have read too late is found by nobody, and nothing else is given up."""

from __future__ import annotations

import asyncio

import pytest

from cluster.block_hash import cache_root
from tests.router.planes import PAIRING
from tests.router.vllm.fake_vllm import answer_to
from tests.router.vllm.linked import PROMPT, Pair
from tests.router.vllm.test_link import virtually

RIGHT = answer_to(PROMPT, 5)
ROOT = cache_root(PAIRING.key, "acme").hex()


def salts_of(pair: Pair) -> list[str]:
    return [body["cache_salt"] for body in pair.decode.asked]


@virtually
async def test_several_choices_are_not_read_by_several_readers_of_the_same_blocks() -> None:
    pair = Pair()
    heard = await pair.answer(n=2)
    assert heard.ids(0) == heard.ids(1) == RIGHT
    assert not pair.prefill.asked and "kv_transfer_params" not in pair.decode.asked[0]


@pytest.mark.parametrize("num_late", [0, 1])
@virtually
async def test_who_leaves_a_slow_queue_gives_up_the_cache_only_where_a_read_was_late(
    num_late: int,
) -> None:
    pair = Pair(lease_s=30.0)
    pair.decode.manners.door_s = 1000.0
    stream = pair.submit()
    await asyncio.sleep(15.0)
    pair.prefill.late_reads = num_late
    stream.close()
    await asyncio.sleep(1.0)
    pair.decode.manners.door_s = 0.0
    assert (await pair.answer(alone=True)).ids() == RIGHT
    before, after = salts_of(pair)
    assert (pair.num_doubts, before != after) == (num_late, bool(num_late))


@virtually
async def test_who_leaves_a_slow_queue_after_the_lease_gives_up_the_cache() -> None:
    pair = Pair(lease_s=6.0)
    pair.decode.manners.door_s = 1000.0
    stream = pair.submit()
    await asyncio.sleep(10.0)
    stream.close()
    await asyncio.sleep(1.0)
    assert pair.num_doubts == 1


@virtually
async def test_what_one_router_may_have_had_read_late_no_other_finds() -> None:
    one, other = Pair(lease_s=6.0), Pair()
    one.prefill.manners.lease_s, one.decode.manners.door_s = 6.0, 7.0
    one.prefill.manners.counts_late = False
    await one.answer()
    await other.answer()
    await other.answer(alone=True)
    first, doubted, again = *salts_of(one), salts_of(other)[0]
    assert len({first, doubted, again, ROOT}) == 4
    assert all(salt.startswith(ROOT) for salt in (first, doubted, again))
    assert salts_of(other) == [again, again]


@virtually
async def test_a_prefill_server_is_asked_with_its_own_salt_whatever_is_doubted() -> None:
    pair = Pair(lease_s=6.0)
    pair.prefill.manners.lease_s, pair.decode.manners.door_s = 6.0, 7.0
    await pair.answer()
    pair.decode.manners.door_s = 0.0
    await pair.answer()
    assert [body["cache_salt"] for body in pair.prefill.asked] == [ROOT, ROOT]


@virtually
async def test_a_prefill_server_that_falls_silent_holds_no_request() -> None:
    pair = Pair()
    pair.prefill.manners.prefill_s = 1e6
    stream = pair.submit()
    await asyncio.sleep(3.0)
    pair.prefill_server.note_lost()
    assert (await stream.next()) is not None
    stream.close()
    assert pair.prefill.aborted == 1 and pair.handoffs[0] == ("vllm-p:1", True)
    assert "kv_transfer_params" not in pair.decode.asked[0]


@virtually
async def test_a_prefill_server_that_answers_again_is_asked_again() -> None:
    pair = Pair()
    pair.prefill_server.note_lost()
    assert (await pair.answer()).ids() == RIGHT
    pair.prefill_server.note_answer()
    assert (await pair.answer()).ids() == RIGHT
    assert [("kv_transfer_params" in body) for body in pair.decode.asked] == [False, True]
