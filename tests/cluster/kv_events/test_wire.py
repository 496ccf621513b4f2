"""The bytes of KV events."""

import msgspec
import pytest
from msgspec import structs

from cluster.cache_change import CacheChange, CachedBlock
from cluster.kv_events.wire import (
    SLICE_BLOCKS,
    SLICE_NAMES,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    decode_batch,
    decode_sequence,
    encode_batch,
    encode_sequence,
    to_changes,
    to_events,
)


def name(letter: str) -> bytes:
    return letter.encode() * 16


def chain(*letters: str) -> list[CachedBlock]:
    parents = [None, *(name(letter) for letter in letters)]
    return [
        CachedBlock(name(letter), parent, [ord(letter), 7])
        for letter, parent in zip(letters, parents, strict=False)
    ]


def test_a_batch_is_an_array_of_tagged_maps_with_every_field_that_vllm_requires() -> None:
    change = CacheChange(stored=chain("a", "b"), removed=[name("z")], cleared=True)
    raw = msgspec.msgpack.decode(encode_batch(EventBatch(1.5, to_events(change), 0)))
    assert raw == [
        1.5,
        [
            {"type": "AllBlocksCleared"},
            {
                "type": "BlockStored",
                "block_hashes": [name("a"), name("b")],
                "parent_block_hash": None,
                "token_ids": [97, 7, 98, 7],
                "block_size": 2,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
            },
            {"type": "BlockRemoved", "block_hashes": [name("z")], "medium": "GPU"},
        ],
        0,
    ]


def test_what_was_encoded_comes_back_as_the_same_changes() -> None:
    blocks = chain("a", "b") + chain("c")
    change = CacheChange(stored=blocks, removed=[name("z")], cleared=True)
    batch = decode_batch(encode_batch(EventBatch(0.0, to_events(change))))
    changes = list(to_changes(batch))
    assert changes[0].cleared
    assert [block for item in changes for block in item.stored] == blocks
    assert changes[-1].removed == [name("z")]


def test_fields_of_later_versions_and_integer_hashes_are_understood() -> None:
    payload = msgspec.msgpack.encode(
        [
            2.0,
            [
                {
                    "type": "BlockStored",
                    "block_hashes": [5],
                    "parent_block_hash": 2**63 + 1,
                    "token_ids": [1, 2],
                    "block_size": 2,
                    "lora_id": None,
                    "medium": "GPU",
                    "lora_name": None,
                    "extra_keys": [None],
                    "session_id": "s",
                }
            ],
        ]
    )
    [change] = to_changes(decode_batch(payload))
    assert change.stored == [
        CachedBlock((5).to_bytes(16, "big"), (2**63 + 1).to_bytes(16, "big"), [1, 2])
    ]


def test_an_adapters_blocks_are_told_as_vllm_tells_them_and_reach_our_index() -> None:
    """By its name where it has one, by its digest else; the number is the digest's."""
    poet, gone = "ab" * 16, "ffffffff" + "0" * 24
    stored = [
        *(structs.replace(each, adapter=poet) for each in chain("a", "b")),
        *(structs.replace(each, adapter=gone) for each in chain("c")),
        *chain("d"),
    ]
    batch = EventBatch(0.0, to_events(CacheChange(stored=stored), {poet: "poet"}))
    found = msgspec.msgpack.decode(encode_batch(batch))[1]
    assert [(each["lora_name"], each["lora_id"]) for each in found] == [
        ("poet", 1 + 0xABABABAB % (2**31 - 1)),
        (gone, 1 + 0xFFFFFFFF % (2**31 - 1)),
        (None, None),
    ]
    [first, second, third] = to_changes(decode_batch(encode_batch(batch)))
    names = [block.name for each in (first, second, third) for block in each.stored]
    assert names == [name(letter) for letter in "abcd"]


def test_blocks_behind_one_that_was_told_as_the_models_own_keep_their_adapter() -> None:
    """A worker of the version before handed on the first without its adapter."""
    first, *others = chain("a", "b", "c")
    stored = [first, *(structs.replace(each, adapter="ab" * 16) for each in others)]
    events = to_events(CacheChange(stored=stored), {"ab" * 16: "poet"})
    told = [(each.block_hashes, each.lora_name) for each in events if isinstance(each, BlockStored)]
    assert told == [([name("a")], None), ([name("b"), name("c")], "poet")]


def test_events_of_other_tiers_do_not_reach_the_index() -> None:
    events = [
        BlockStored([name("a")], None, [1], 1, medium="CPU"),
        BlockRemoved([name("a")], medium="STORAGE"),
        AllBlocksCleared(),
    ]
    assert list(to_changes(EventBatch(0.0, list(events)))) == [CacheChange(cleared=True)]


@pytest.mark.parametrize(
    "event",
    [
        BlockStored([name("a")], None, [1, 2, 3], 2),
        BlockStored([name("a")], None, [], 0),
        BlockStored([name("a")], None, [-1], 1),
        BlockStored([name("a")], None, [2**32], 1),
    ],
)
def test_a_stored_event_whose_numbers_cannot_be_right_is_refused(event: BlockStored) -> None:
    with pytest.raises(ValueError):
        list(to_changes(EventBatch(0.0, [event])))


def test_a_large_event_comes_in_slices_of_few_blocks() -> None:
    names = [number.to_bytes(16, "big") for number in range(1000)]
    stored = BlockStored(names, None, list(range(1000)), 1)
    changes = list(to_changes(EventBatch(0.0, [stored, BlockRemoved(names)])))
    assert [block.name for change in changes for block in change.stored] == names
    assert [name for change in changes for name in change.removed] == names
    assert max(len(change.stored) for change in changes) == SLICE_BLOCKS
    assert max(len(change.removed) for change in changes) == SLICE_NAMES


def test_a_sequence_number_is_eight_bytes() -> None:
    assert decode_sequence(encode_sequence(2**40)) == 2**40
    with pytest.raises(ValueError):
        decode_sequence(b"\0" * 7)
