"""Other engines' events, as changes of our index."""

import random
from collections import Counter
from itertools import takewhile

import pytest

from cluster.block_hash import cache_root, chain_names, pack_tokens
from cluster.cache_change import CacheChange, CachedBlock
from cluster.identity import WorkerKey
from router.engine_events.engine_blocks import EngineBlocks
from router.engine_events.source import EngineEventSource
from router.index.prefix_index import PrefixIndex
from tests.router.engine_events.engine import (
    CLEARED,
    ROOT,
    SALT,
    SIZE,
    SOURCE,
    events_in,
    payload,
    removed,
    stored,
)

KEY = WorkerKey("vllm-1", "i1")
PROMPT = list(range(100, 112))
TENANTS = (SALT, cache_root("a model", "another tenant").hex())
NAMES = chain_names(pack_tokens(PROMPT), parent=ROOT, block_size_tokens=SIZE)


class Told:
    """An engine's blocks, and an index that is told of them."""

    def __init__(self, *, max_blocks: int = 1000, source: EngineEventSource = SOURCE) -> None:
        self.left_out: Counter[str] = Counter()
        self.blocks = EngineBlocks(source, self._note, max_blocks=max_blocks)
        self.index = PrefixIndex(10_000)
        self.index.add_worker(KEY, SIZE)
        self.live: set[bytes] = set()
        self.slices: list[CacheChange] = []

    def hear(self, *events: object) -> None:
        for event in events_in(payload(*events)):
            for change in self.blocks.changes(event):
                self.slices.append(change)
                assert self.index.apply(KEY, change) == 0, "the index was told what does not fit"
                self.live = set() if change.cleared else self.live
                self.live |= {block.name for block in change.stored}
                self.live -= set(change.removed)

    def num_matched(self, prompt: list[int], root: bytes = ROOT) -> int:
        return self.index.match(root, pack_tokens(prompt), SIZE).of(KEY)

    def _note(self, why: str, num_blocks: int) -> None:
        self.left_out[why] += num_blocks


def test_blocks_get_our_names_by_their_tokens_and_are_found_by_a_prompt() -> None:
    told = Told()
    told.hear(stored([7, 8], None, PROMPT[:8]), stored([9], 8, PROMPT[8:]))
    assert told.num_matched([*PROMPT, 1, 2]) == 3
    assert told.slices[0].stored[1] == CachedBlock(NAMES[1], NAMES[0], PROMPT[4:8])
    told.hear(removed([9]))
    assert told.num_matched(PROMPT) == 2
    told.hear(CLEARED)
    assert told.num_matched(PROMPT) == 0 and len(told.blocks) == 0


def test_a_block_is_there_until_the_last_of_its_copies_is_gone() -> None:
    told = Told()
    for _ in range(3):
        told.hear(stored([7], None, PROMPT[:4]))
    told.hear(removed([7]), removed([7]))
    assert told.num_matched(PROMPT) == 1 and told.blocks.num_copies(7) == 1
    told.hear(removed([7]))
    assert told.num_matched(PROMPT) == 0
    told.hear(removed([7]))  # of which nobody had heard
    told.hear(stored([7], None, PROMPT[:4]))
    assert told.num_matched(PROMPT) == 1


@pytest.mark.parametrize(
    "one, other",
    [
        (2**64 - 5, -5),
        (-(2**63), 2**63),
        (b"\xaa" * 24 + (17).to_bytes(8, "big"), 17),
        (b"\x00" * 24 + b"\xff" * 8, -1),
    ],
)
def test_a_hash_is_the_same_with_a_sign_without_one_and_as_a_digest(
    one: int | bytes, other: int | bytes
) -> None:
    told = Told()
    told.hear(stored([one], None, PROMPT[:4]), stored([3], other, PROMPT[4:8]))
    assert told.num_matched(PROMPT) == 2
    told.hear(removed([other]))
    assert told.num_matched(PROMPT) == 0


def test_a_tenants_root_is_its_salt_and_nobody_elses_prompts_match() -> None:
    told, other = Told(), cache_root("a model", "another tenant")
    told.hear(stored([7, 8], None, PROMPT[:8], extra_keys=[[other.hex()], None]))
    assert told.num_matched(PROMPT, other) == 2 and told.num_matched(PROMPT) == 0
    told.hear(stored([9], 8, PROMPT[8:], extra_keys=[None]))
    assert told.num_matched(PROMPT, other) == 3


@pytest.mark.parametrize(
    "extra",
    [None, [None], [["acme"]], [[SALT.upper()]], [[SALT + "00"]], [[SALT, "0a1b"]], [[7]]],
)
def test_what_was_asked_of_the_engine_by_others_is_left_out(extra: object) -> None:
    told = Told()
    told.hear(stored([7], None, PROMPT[:4], extra_keys=extra), stored([8], 7, PROMPT[4:8]))
    assert len(told.blocks) == 0
    assert told.left_out == {"other_salt": 1, "unknown_parent": 1}


def test_what_follows_an_image_is_left_out_and_what_comes_before_it_is_not() -> None:
    told = Told()
    image = ["0a1b", 3]
    told.hear(stored([7, 8, 9], None, PROMPT, extra_keys=[[SALT], [image], None]))
    assert told.num_matched(PROMPT) == 1
    assert told.left_out == {"extra_keys": 2}
    told.hear(stored([10], 9, PROMPT[:4]))
    assert told.left_out["unknown_parent"] == 1
    told.hear(removed([8]), removed([9]), removed([10]))
    assert told.num_matched(PROMPT) == 1


def test_in_a_later_block_one_text_alone_is_an_image_of_an_older_engine_and_no_salt() -> None:
    told = Told()
    told.hear(stored([7], None, PROMPT[:4]), stored([8], 7, PROMPT[4:8], extra_keys=[["0a1b"]]))
    assert told.num_matched(PROMPT) == 1 and told.left_out == {"extra_keys": 1}


@pytest.mark.parametrize(
    "more, why",
    [
        ({"lora_name": "sql"}, "adapter"),
        ({"lora_id": 3}, "adapter"),
        ({"medium": "CPU"}, "other_medium"),
        ({"medium": "DISK"}, "other_medium"),
        ({"locality": "REMOTE"}, "other_medium"),
        ({"group_idx": 1}, "other_group"),
        ({"group_idx": 0, "kv_cache_spec_kind": "sliding_window"}, "other_group"),
        ({"group_idx": 0, "kv_cache_spec_kind": "mamba"}, "other_group"),
    ],
)
def test_blocks_of_no_use_to_a_prompt_are_left_out_by_their_reason(
    more: dict[str, object], why: str
) -> None:
    told = Told()
    told.hear(stored([7, 8], None, PROMPT[:8], **more))
    assert told.num_matched(PROMPT) == 0 and told.left_out == {why: 2}


def test_of_several_groups_the_first_with_full_attention_counts_and_no_other() -> None:
    told = Told()
    full = {"group_idx": 2, "kv_cache_spec_kind": "full_attention"}
    told.hear(
        stored([7], None, PROMPT[:4], group_idx=0, kv_cache_spec_kind="sliding_window"),
        stored([7], None, PROMPT[:4], **full),
        stored([7], None, PROMPT[:4], group_idx=3, kv_cache_spec_kind="full_attention"),
    )
    assert told.blocks.num_copies(7) == 1
    told.hear(removed([7], group_idx=0), removed([7], group_idx=3))
    assert told.num_matched(PROMPT) == 1
    told.hear(removed([7], group_idx=2))
    assert told.num_matched(PROMPT) == 0


def test_a_copy_that_leaves_a_slower_tier_leaves_the_fast_one_alone() -> None:
    told = Told()
    told.hear(stored([7], None, PROMPT[:4]), removed([7], medium="CPU"))
    assert told.num_matched(PROMPT) == 1


def test_a_partial_last_block_is_left_out_until_it_is_whole() -> None:
    told = Told()
    told.hear(stored([7], None, PROMPT[:4]), stored([8], 7, PROMPT[4:6], size=2))
    assert told.num_matched(PROMPT) == 1 and told.left_out == {"other_size": 1}
    told.hear(removed([8]), stored([9], 7, PROMPT[4:8]))
    assert told.num_matched(PROMPT) == 2


def test_an_event_that_nobody_knows_is_counted_and_passed_over() -> None:
    told = Told()
    told.hear({"type": "BlockMoved", "to": "moon"}, stored([7], None, PROMPT[:4]))
    assert told.left_out == {"unknown_event": 1} and told.num_matched(PROMPT) == 1


@pytest.mark.parametrize(
    "event",
    [
        stored([7, 8], None, PROMPT[:7]),
        stored([7], None, [-1, 2, 3, 4]),
        stored([7], None, [2**32, 2, 3, 4]),
        stored(["7"], None, PROMPT[:4]),
        stored([b"short"], None, PROMPT[:4]),
        stored([7], None, PROMPT[:4], extra_keys=[[SALT], None]),
        stored([7], None, PROMPT[:4], extra_keys=[["x" * 300_000]]),
        removed(["7"]),
    ],
)
def test_what_cannot_be_true_is_an_error(event: object) -> None:
    with pytest.raises(ValueError):
        Told().hear(event)


def test_one_hash_of_two_blocks_is_an_error() -> None:
    told = Told()
    with pytest.raises(ValueError, match="two blocks"):
        told.hear(stored([7], None, PROMPT[:4]), stored([7], None, PROMPT[4:8]))


def test_an_engine_cannot_make_its_table_longer_than_its_bound() -> None:
    told = Told(max_blocks=2)
    told.hear(stored([7, 8], None, PROMPT[:8]))
    with pytest.raises(OverflowError):
        told.hear(stored([9], 8, PROMPT[8:]))


def test_a_prompt_of_a_hundred_thousand_tokens_comes_in_slices() -> None:
    told, prompt = Told(max_blocks=50_000), list(range(100_000))
    told.index = PrefixIndex(50_000)
    told.index.add_worker(KEY, SIZE)
    told.hear(stored(list(range(1, 25_001)), None, prompt))
    assert told.num_matched(prompt) == 25_000
    assert max(len(change.stored) for change in told.slices) <= 256
    told.hear(removed(list(range(1, 25_001))))
    assert told.num_matched(prompt) == 0
    assert max(len(change.removed) for change in told.slices) <= 256


class Pool:
    """A naive model: an engine's blocks by hash, with how many copies there are of each."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.copies: Counter[int] = Counter()

    def next_event(self) -> dict[str, object]:
        chance = self.random.random()
        if chance < 0.02:
            self.copies.clear()
            return CLEARED
        if chance < 0.5 and (live := +self.copies):
            gone = self.random.choice(sorted(live))
            self.copies[gone] -= 1
            return removed([gone - 2**64 if gone >= 2**63 else gone], group_idx=0)
        return self._store()

    def _store(self) -> dict[str, object]:
        salt = self.random.choice(TENANTS)
        prompt = tuple(self.random.choices((1, 2), k=SIZE * self.random.randint(1, 3)))
        hashes = [_hash_of(salt, prompt[:end]) for end in range(SIZE, len(prompt) + 1, SIZE)]
        known = 0  # a prefix that is there may be used, or computed once more
        while known < len(hashes) - 1 and self.copies[hashes[known]] and self.random.random() < 0.7:
            known += 1
        self.copies.update(hashes[known:])
        extra = [None if index else [salt] for index in range(len(hashes))][known:]
        parent = hashes[known - 1] if known else None
        tokens = list(prompt[known * SIZE :])
        return stored(hashes[known:], parent, tokens, group_idx=0, extra_keys=extra)

    def num_held(self, salt: str, prompt: list[int]) -> int:
        """Leading blocks of a prompt that the engine would find."""
        ends = range(SIZE, len(prompt) + 1, SIZE)
        held = (self.copies[_hash_of(salt, tuple(prompt[:end]))] > 0 for end in ends)
        return sum(1 for _ in takewhile(bool, held))


def _hash_of(salt: str, prefix: tuple[int, ...]) -> int:
    return random.Random(f"{salt}{prefix}").getrandbits(64)


@pytest.mark.parametrize("seed", range(8))
def test_after_any_events_the_index_has_what_a_naive_count_of_copies_has(seed: int) -> None:
    pool, told = Pool(seed), Told()
    for _ in range(300):
        told.hear(pool.next_event())
        live = +pool.copies
        assert len(told.blocks) == len(live) == len(told.live) == told.index.num_blocks_of(KEY)
        assert all(told.blocks.num_copies(key) == num for key, num in live.items())
        salt, prompt = pool.random.choice(TENANTS), pool.random.choices((1, 2), k=3 * SIZE)
        assert told.num_matched(prompt, bytes.fromhex(salt)) == pool.num_held(salt, prompt)
