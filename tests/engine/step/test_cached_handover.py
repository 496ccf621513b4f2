"""A prefix that one engine has cached, kept by another; blocks are copied by the test."""

from __future__ import annotations

import math

from msgspec import structs

from engine.contract.commands import Cancel, Deliver, Inspect, PrefillMode, ReleaseExport, Submit
from engine.contract.messages import Frame, Reserved
from engine.contract.warm_blocks import WarmBlock
from engine.memory.block_pool import BlockState
from engine.step.engine import Engine
from engine.step.warm_list import WarmList
from tests.engine.step.engine_scenario import (
    ROOT,
    check,
    copy_kv,
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    small_replica,
    step,
)

PROMPT = [1, 2, 3, 4, 5, 6]


def served(engine: Engine, name: str, prompt: list[int]) -> None:
    """The engine computes it, and has it cached afterwards."""
    engine.apply(Submit(request(name, prompt, max_tokens=1)))
    run_until_ended(engine, [name])


def pinned(engine: Engine, prompt: list[int]) -> Frame:
    """What a CACHED request is told, at once."""
    engine.apply(Submit(request("out", prompt, mode=PrefillMode.CACHED)))
    frame = step(engine)
    check(engine)
    return frame


def keep(engine: Engine, prompt: list[int]) -> Reserved:
    engine.apply(Submit(request("in", prompt, mode=PrefillMode.KEEP, timeout_ms=math.inf)))
    [reserved] = step(engine).reserved
    return reserved


def warm(engine: Engine) -> list[WarmBlock]:
    engine.apply(Inspect(1, warm_from=0))
    [inspection] = step(engine).inspections
    return inspection.warm.blocks


def test_a_cached_prefix_is_pinned_at_once_and_nothing_is_computed() -> None:
    engine = small_engine()
    served(engine, "before", PROMPT)
    frame = pinned(engine, [*PROMPT, 0, 0, 0])
    [started], [prefilled] = frame.started, frame.prefilled
    assert started.cached_tokens == len(PROMPT)
    assert (prefilled.span.first_index, prefilled.span.num_blocks) == (0, 3)
    assert not frame.tokens and not engine.table.num_waiting_tokens()
    assert engine.placement.pool.count(BlockState.EXPORTED) == 3
    engine.apply(ReleaseExport("out"))
    [ended] = step(engine).ended
    assert ended.error_code == ""
    assert engine.placement.pool.count(BlockState.CACHED) == 3


def test_of_what_is_not_cached_nothing_is_announced() -> None:
    engine = small_engine()
    frame = pinned(engine, PROMPT)
    assert [started.cached_tokens for started in frame.started] == [0]
    assert frame.prefilled == []
    engine.apply(ReleaseExport("out"))
    assert [ended.error_code for ended in step(engine).ended] == [""]


def test_a_kept_prefix_is_found_by_the_next_request_as_if_it_had_been_computed() -> None:
    source, target = small_replica(8), small_replica(8)
    giving, taking = small_engine(source), small_engine(target)
    served(giving, "before", PROMPT)
    [prefilled] = pinned(giving, PROMPT).prefilled
    reserved = keep(taking, PROMPT)
    assert reserved.first_block == 0 and len(reserved.block_ids) == 3
    pairs = zip(prefilled.span.block_ids, reserved.block_ids, strict=True)
    copy_kv(source.kv, target.kv, list(pairs))
    taking.apply(Deliver("in", 0, 3))
    taking.apply(Cancel("in"))
    step(taking)
    check(taking)
    assert taking.placement.pool.count(BlockState.CACHED) == 3
    asked = [*PROMPT, 0]
    taking.apply(Submit(request("next", asked)))
    completion = run_until_ended(taking, ["next"])["next"]
    assert completion.token_ids(0) == expected_tokens(request("next", asked), 0)
    assert completion.ended.usage.cached_tokens == len(PROMPT)


def test_an_adapters_prefix_is_kept_where_it_is_not_loaded_and_told_as_its_own() -> None:
    engine, digest = small_engine(), "ab" * 16
    kept = request("in", PROMPT, mode=PrefillMode.KEEP, timeout_ms=math.inf)
    engine.apply(Submit(structs.replace(kept, adapter=digest)))
    [reserved] = step(engine).reserved
    assert len(reserved.block_ids) == 3
    engine.apply(Deliver("in", 0, 3))
    engine.apply(Cancel("in"))
    cache = step(engine).cache
    assert cache is not None and [block.adapter for block in cache.stored] == [digest] * 3
    served(engine, "plain", [0, 0, 1, 1])
    assert {each.block.adapter for each in warm(engine)} == {"", digest}


def test_what_was_not_delivered_of_a_kept_prefix_is_free_again() -> None:
    engine = small_engine()
    keep(engine, PROMPT)
    engine.apply(Deliver("in", 0, 1))
    engine.apply(Cancel("in"))
    step(engine)
    check(engine)
    pool = engine.placement.pool
    assert (pool.count(BlockState.CACHED), pool.count(BlockState.FREE)) == (1, 7)


def test_a_prefix_that_is_to_be_kept_waits_for_every_request_and_takes_no_seat() -> None:
    engine = small_engine(small_replica(4), max_num_seqs=1)
    engine.apply(Submit(request("in", PROMPT, mode=PrefillMode.KEEP)))
    engine.apply(Submit(request("client", PROMPT, max_tokens=1)))
    frame = step(engine)
    assert [started.request_id for started in frame.started] == ["client"]
    assert frame.reserved == []
    engine.apply(Cancel("in"))
    run_until_ended(engine, ["client", "in"])


def test_a_kept_prefix_leaves_the_only_seat_to_others() -> None:
    engine = small_engine(small_replica(8), max_num_seqs=1)
    keep(engine, PROMPT)
    engine.apply(Submit(request("client", [0, 0], max_tokens=1)))
    run_until_ended(engine, ["client"])


def test_the_warm_blocks_say_whose_they_are_and_which_were_used_last() -> None:
    engine = small_engine()
    served(engine, "old", [1, 1, 2, 2])
    served(engine, "new", [3, 3, 4, 4])
    blocks = warm(engine)
    assert [each.block.token_ids for each in blocks] == [[3, 3], [4, 4], [1, 1], [2, 2]]
    assert [each.root for each in blocks] == [ROOT, None, ROOT, None]


def test_the_warm_list_is_of_the_hottest_and_told_in_parts() -> None:
    engine = small_engine()
    served(engine, "old", [1, 1, 2, 2])
    served(engine, "new", [3, 3, 4, 4])
    listed = WarmList(engine.placement.pool, engine.placement.cache, max_blocks=3)
    parts = [listed.part(first, max_blocks=2) for first in (0, 2)]
    assert [[each.block.token_ids for each in part.blocks] for part in parts] == [
        [[3, 3], [4, 4]],
        [[1, 1]],
    ]
    assert {(part.num_listed, part.num_cached) for part in parts} == {(3, 4)}


def test_what_was_lost_since_the_warm_list_was_made_is_not_told() -> None:
    engine = small_engine()
    served(engine, "old", [1, 1, 2, 2])
    listed = WarmList(engine.placement.pool, engine.placement.cache)
    listed.part(0, max_blocks=1)
    for block_id in range(8):
        engine.placement.cache.forget(block_id)
    part = listed.part(1, max_blocks=1)
    assert (part.blocks, part.num_listed, part.num_cached) == ([], 2, 0)


def test_blocks_in_use_are_hotter_than_all_others() -> None:
    engine = small_engine()
    served(engine, "old", [1, 1, 2, 2])
    served(engine, "new", [3, 3, 4, 4])
    pinned(engine, [1, 1, 2, 2])
    assert [each.block.token_ids for each in warm(engine)] == [[1, 1], [2, 2], [3, 3], [4, 4]]
