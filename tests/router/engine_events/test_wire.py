"""Every shape that engines have given their events, read alike."""

from typing import Any

import msgspec
import pytest

from router.engine_events import wire
from router.engine_events.packed_array import BLOCK_HASHES, TOKEN_IDS, PackedArray, num_items
from router.engine_events.wire import (
    ClearedEvent,
    EngineEvent,
    RemovedEvent,
    StoredEvent,
    read_batch,
)
from tests.router.engine_events.engine import CLEARED, events_in, payload, removed, stored

pack = msgspec.msgpack.encode
TOKENS = [1, 200, 70_000, 2**32 - 1]
TAGGED = ["BlockStored", [7, -8], 5, TOKENS, 2, None]
"""The first arrays, and SGLang's; later ones have more fields at the end."""


def read_stored(event: EngineEvent) -> tuple[list[Any], Any, list[int], int]:
    assert isinstance(event, StoredEvent)
    hashes = PackedArray(bytes(event.block_hashes), BLOCK_HASHES).slices(100)
    tokens = PackedArray(bytes(event.token_ids), TOKEN_IDS).slices(100)
    return sum(hashes, []), event.parent_block_hash, sum(tokens, []), event.block_size


@pytest.mark.parametrize(
    "event",
    [
        stored([7, -8], 5, TOKENS, size=2),
        stored([7, -8], 5, TOKENS, size=2, session_id="s", owner_of_tomorrow=[1, {"a": None}]),
        TAGGED,
        [*TAGGED, "GPU"],
        [*TAGGED, "GPU", None, [None, ["salt"]], 0, "full_attention", None, "LOCAL", "x", "s", 9],
    ],
    ids=["map", "map of tomorrow", "array of 6", "SGLang's array of 7", "array of all and one"],
)
def test_a_stored_event_of_every_shape_says_the_same(event: Any) -> None:
    (found,) = events_in(payload(event))
    assert read_stored(found) == ([7, -8], 5, TOKENS, 2)
    assert isinstance(found, StoredEvent) and found.is_in_own_memory and not found.has_adapter
    assert found.serves_whole_prefixes


def test_the_fields_at_an_arrays_end_are_those_of_a_map() -> None:
    array = [*TAGGED, "CPU", "sql", [None, ["salt"]], 3, "sliding_window", 128, "REMOTE"]
    (found,) = events_in(payload(array))
    assert isinstance(found, StoredEvent)
    assert (found.medium, found.lora_name, found.group_idx) == ("CPU", "sql", 3)
    assert (found.kv_cache_spec_kind, found.locality) == ("sliding_window", "REMOTE")
    assert found.read_extra_keys() == [None, ["salt"]]


@pytest.mark.parametrize(
    "event, medium, group",
    [
        (removed([7], group_idx=2), "GPU", 2),
        ({"type": "BlockRemoved", "block_hashes": [7]}, None, None),
        (["BlockRemoved", [7]], None, None),
        (["BlockRemoved", [7], "GPU", 2, None, None], "GPU", 2),
    ],
)
def test_a_removed_event_of_every_shape_says_the_same(
    event: Any, medium: str | None, group: int | None
) -> None:
    (found,) = events_in(payload(event))
    assert isinstance(found, RemovedEvent) and found.is_in_own_memory
    assert bytes(found.block_hashes) == pack([7])
    assert (found.medium, found.group_idx) == (medium, group)


@pytest.mark.parametrize("event", [CLEARED, ["AllBlocksCleared"], {**CLEARED, "why": "asked"}])
def test_a_cleared_event_of_every_shape_is_one(event: Any) -> None:
    (found,) = events_in(payload(event))
    assert isinstance(found, ClearedEvent)


@pytest.mark.parametrize(
    "batch",
    [
        [2.5, [CLEARED]],
        [2.5, [CLEARED], None],
        [2.5, [["AllBlocksCleared"]], 3, "tomorrow"],
        {"ts": 2.5, "events": [CLEARED], "data_parallel_rank": 0},
    ],
)
def test_a_batch_is_an_array_with_or_without_its_end_or_a_map(batch: Any) -> None:
    assert read_batch(pack(batch)).ts == 2.5
    assert [event.type for event in events_in(pack(batch))] == ["AllBlocksCleared"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xc1",
        b"\xff" * 100,
        pack(None),
        pack([1.0]),
        pack(["now", []]),
        pack([1.0, 7]),
        pack([1.0, [7]]),
        pack([1.0, [[]]]),
        pack([1.0, [[7]]]),
        pack([1.0, [{"block_hashes": [1]}]]),
        pack([1.0, [{"type": "BlockStored"}]]),
        pack([1.0, [["BlockStored", [1], None, [1]]]]),
        pack([1.0, [["BlockStored", [1], None, [1], "many"]]]),
        pack([1.0, []])[:-1],
    ],
)
def test_garbage_is_an_error_and_nothing_worse(garbage: bytes) -> None:
    with pytest.raises(ValueError):
        events_in(garbage)


def test_a_message_beyond_its_bounds_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_EVENTS", 3)
    assert len(events_in(payload(*[CLEARED] * 3))) == 3
    with pytest.raises(ValueError, match="4 events"):
        events_in(payload(*[CLEARED] * 4))
    monkeypatch.setattr(wire, "MAX_PAYLOAD_BYTES", 40)
    with pytest.raises(ValueError, match="at most 40"):
        events_in(payload(CLEARED, CLEARED))


@pytest.mark.parametrize("length", [0, 1, 15, 16, 70_000])
def test_a_packed_array_gives_all_its_items_in_slices(length: int) -> None:
    items = [index * 50_000 % 2**32 for index in range(length)]
    array = PackedArray(pack(items), TOKEN_IDS)
    slices = list(array.slices(4000))
    assert len(array) == length and sum(slices, []) == items
    assert all(len(part) == 4000 for part in slices[:-1])


def test_hashes_of_all_kinds_lie_beside_each_other() -> None:
    items = [0, 127, 128, 2**16, 2**32, 2**64 - 1, -1, -33, -200, -40_000, -(2**40), -(2**63)]
    digests = [b"a" * length for length in (8, 16, 20, 32, 64)]
    array = PackedArray(pack([*items, *digests, 5]), BLOCK_HASHES)
    assert sum(array.slices(3), []) == [*items, *digests, 5]


def test_an_array_that_ends_too_early_or_has_other_items_is_an_error() -> None:
    for broken in (b"\xdd\x00\x00\x00\x05\x01\x02", b"\xdc\x00", b"\x81\x01\x01"):
        with pytest.raises(ValueError):
            PackedArray(broken, TOKEN_IDS)
    for items in ([1, "two"], [1, None], [1, -1], [1, 2**32], [1, [2]], [1, 2.0]):
        with pytest.raises(ValueError, match="items 1 to 1"):
            list(PackedArray(pack(items), TOKEN_IDS).slices(1))
    with pytest.raises(ValueError):
        num_items(b"")
