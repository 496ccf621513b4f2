"""The radix tree, against literal examples and a naive model."""

import random

import pytest

from cluster.block_hash import cache_root, chain_names, pack_tokens
from router.index.invariants import check_invariants
from router.index.radix_tree import RadixTree
from router.index.structure import TreeStructure

ROOT = cache_root("pair")
BLOCK = 2
A, B, C = 1, 2, 4


def packed(text: str) -> bytes:
    return pack_tokens([ord(letter) for letter in text])


def names(text: str, root: bytes = ROOT) -> list[bytes]:
    return chain_names(packed(text), parent=root, block_size_tokens=BLOCK)


def store(tree: RadixTree, text: str, bit: int, *, after: str = "") -> bool:
    parent = names(after)[-1] if after else None
    run = names(after + text)[len(after) // BLOCK :]
    fitted = tree.store(parent, run, packed(text), bit)
    check_invariants(tree)
    return fitted


def holdings(tree: RadixTree, text: str, root: bytes = ROOT) -> dict[int, int]:
    found: dict[int, int] = {}
    for num_blocks, bits in tree.match(root, packed(text)):
        for bit in (A, B, C):
            if bits & bit:
                assert found.get(bit, 0) < num_blocks, "a later step must say more"
                found[bit] = num_blocks
    return found


def new_tree(max_blocks: int = 1000) -> RadixTree:
    return RadixTree(BLOCK, max_blocks)


def test_each_worker_is_credited_with_the_blocks_it_holds_from_the_start() -> None:
    tree = new_tree()
    store(tree, "aabbcc", A)
    store(tree, "aabbdd", B)
    store(tree, "aa", C)
    assert holdings(tree, "aabbccee") == {A: 3, B: 2, C: 1}
    assert holdings(tree, "aabbd") == {A: 2, B: 2, C: 1}
    assert holdings(tree, "abbb") == {}
    assert holdings(tree, "a") == {} == holdings(tree, "")
    assert tree.num_blocks == 4


def test_blocks_are_found_under_their_own_root_only() -> None:
    tree = new_tree()
    store(tree, "aabb", A)
    assert holdings(tree, "aabb", cache_root("pair", "another tenant")) == {}


def test_chunks_of_one_sequence_become_one_node() -> None:
    tree = new_tree()
    for end in range(2, 20, 2):
        store(tree, "aabbccddeeffgghhii"[end - 2 : end], A, after="aabbccddeeffgghhii"[: end - 2])
    assert len(tree.structure.nodes) == 1
    assert holdings(tree, "aabbccddeeffgghhii") == {A: 9}


def test_a_block_in_the_middle_that_is_removed_ends_the_match_until_it_comes_back() -> None:
    tree = new_tree()
    store(tree, "aabbccdd", A)
    tree.remove([names("aabb")[-1]], A)
    check_invariants(tree)
    assert holdings(tree, "aabbccdd") == {A: 1}
    store(tree, "bb", A, after="aa")
    assert holdings(tree, "aabbccdd") == {A: 4}
    assert len(tree.structure.nodes) == 1


@pytest.mark.parametrize("backwards", [True, False])
def test_blocks_that_go_together_are_cut_off_together(
    backwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine evicts a long prompt from its end: a cut for each block would copy its tokens."""
    text = "".join(chr(97 + number % 26) + chr(65 + number // 26) for number in range(400))
    tree = new_tree()
    store(tree, text, A)
    gone = names(text)[100:300]
    cuts: list[int] = []
    cut = TreeStructure.cut
    monkeypatch.setattr(
        TreeStructure, "cut", lambda tree, node, at: cuts.append(at) or cut(tree, node, at)
    )
    tree.remove(gone[::-1] if backwards else gone, A)
    check_invariants(tree)
    assert len(cuts) <= 2
    assert holdings(tree, text) == {A: 100}


def test_an_expectation_counts_at_once_and_is_confirmed_or_dropped_at_the_end() -> None:
    tree = new_tree()
    for came_true in (True, False):
        tree.expect(ROOT, packed("aabbc"), A)
        check_invariants(tree)
        assert holdings(tree, "aabbcc") == {A: 2}
        tree.settle(ROOT, packed("aabbc"), A, came_true=came_true)
        check_invariants(tree)
        assert holdings(tree, "aabbcc") == {A: 2}, "what was confirmed once stays"
    tree.expect(ROOT, packed("xxyy"), B)
    store(tree, "xx", B)
    tree.settle(ROOT, packed("xxyy"), B, came_true=False)
    assert holdings(tree, "xxyy") == {B: 1}


def test_a_block_that_was_removed_while_it_was_expected_does_not_come_back() -> None:
    tree = new_tree()
    tree.expect(ROOT, packed("aabb"), A)
    tree.remove([names("aabb")[-1]], A)
    tree.settle(ROOT, packed("aabb"), A, came_true=True)
    check_invariants(tree)
    assert holdings(tree, "aabb") == {A: 1}


def test_a_sweep_of_all_workers_leaves_nothing_behind() -> None:
    tree = new_tree()
    store(tree, "aabbcc", A)
    store(tree, "aabb", B)
    tree.expect(ROOT, packed("zz"), A)
    for _ in tree.sweep(A | B):
        check_invariants(tree)
    check_invariants(tree)
    assert (tree.num_blocks, list(tree.structure.nodes)) == (0, [])


def test_a_run_below_an_unknown_parent_or_with_contradicting_names_is_left_out() -> None:
    tree = new_tree()
    store(tree, "aabb", A)
    assert not tree.store(b"nobody's", [b"n1"], packed("cc"), A)
    assert not tree.store(None, [b"n1", b"n1"], packed("ccdd"), A)
    assert not tree.store(names("aa")[-1], [b"another"], packed("bb"), B)
    assert not tree.store(None, [names("aa")[0]], packed("zz"), B)
    assert not tree.store(None, [names("aabb")[-1]], packed("qq"), B)
    check_invariants(tree)
    assert holdings(tree, "aabb") == {A: 2}


def test_a_full_tree_drops_the_leaf_that_was_used_least_recently() -> None:
    tree = new_tree(max_blocks=6)
    for text in ("aa11", "bb22", "cc33"):
        store(tree, text, A)
    holdings(tree, "aa11")
    store(tree, "dd", A)
    assert holdings(tree, "bb22") == {}
    assert holdings(tree, "aa11") == {A: 2} == holdings(tree, "cc33")
    assert tree.num_blocks == 5
    store(tree, "xx" * 9, A)
    assert tree.num_blocks <= 6


def test_churn_leaves_neither_nodes_nor_queue_entries_behind() -> None:
    tree = new_tree()
    store(tree, "aabb", A)
    for number in range(2000):
        run = f"{number:04d}"
        tree.expect(ROOT, packed("aabb" + run), B)
        tree.settle(ROOT, packed("aabb" + run), B, came_true=True)
        tree.remove(names("aabb" + run)[2:], B)
    check_invariants(tree)
    assert len(tree.structure.nodes) <= 2
    assert len(list(tree.structure.leaves)) <= 2


class NaiveIndex:
    """For each worker the names it holds and expects; a chain is known while its end is."""

    def __init__(self) -> None:
        self.held: dict[int, set[bytes]] = {bit: set() for bit in (A, B, C)}
        self.expected: dict[int, set[bytes]] = {bit: set() for bit in (A, B, C)}
        self.ancestors: dict[bytes, list[bytes]] = {}

    def chain(self, text: str) -> list[bytes]:
        chain = names(text)
        for index, name in enumerate(chain):
            self.ancestors[name] = chain[: index + 1]
        return chain

    def knows(self, name: bytes) -> bool:
        somewhere = set().union(*self.held.values(), *self.expected.values())
        return any(name in self.ancestors[other] for other in somewhere)

    def holdings(self, text: str) -> dict[int, int]:
        found = {}
        for bit in (A, B, C):
            num_blocks = 0
            for name in names(text):
                if name not in self.held[bit] | self.expected[bit]:
                    break
                num_blocks += 1
            if num_blocks:
                found[bit] = num_blocks
        return found

    def num_known(self) -> int:
        somewhere = set().union(*self.held.values(), *self.expected.values())
        return len({name for other in somewhere for name in self.ancestors[other]})


def one_random_operation(
    rng: random.Random, tree: RadixTree, model: NaiveIndex, open_expectations: list[tuple[str, int]]
) -> None:
    text = "".join(rng.choice("ab") for _ in range(rng.randrange(0, 13)))
    bit = rng.choice((A, B, C))
    chain = model.chain(text)
    match rng.randrange(7):
        case 0 | 1 if chain:
            start = rng.randrange(len(chain))
            parent = chain[start - 1] if start else None
            run = packed(text)[start * 8 : len(chain) * 8]
            fitted = tree.store(parent, chain[start:], run, bit)
            assert fitted == (parent is None or model.knows(parent))
            if fitted:
                model.held[bit] |= set(chain[start:])
                model.expected[bit] -= set(chain[start:])
        case 2 if chain:
            gone = rng.sample(chain, rng.randrange(1, len(chain) + 1))
            tree.remove(gone, bit)
            model.held[bit] -= set(gone)
            model.expected[bit] -= set(gone)
        case 3:
            tree.expect(ROOT, packed(text), bit)
            model.expected[bit] |= set(chain)
            open_expectations.append((text, bit))
        case 4 | 5 if open_expectations:
            text, bit = open_expectations.pop(rng.randrange(len(open_expectations)))
            came_true = rng.random() < 0.7
            tree.settle(ROOT, packed(text), bit, came_true=came_true)
            open_names = set(names(text)) & model.expected[bit]
            model.expected[bit] -= open_names
            model.held[bit] |= open_names if came_true else set()
        case 6 if rng.random() < 0.1:
            model.held[bit].clear()
            model.expected[bit].clear()
            for _ in tree.sweep(bit):
                check_invariants(tree)


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_agrees_with_a_naive_model_after_every_operation(seed: int) -> None:
    rng = random.Random(seed)
    counts = {A: 0, B: 0, C: 0}

    def count(bits: int, num_blocks: int) -> None:
        for bit in counts:
            counts[bit] += num_blocks if bits & bit else 0

    tree, model = RadixTree(BLOCK, 10_000, on_count=count), NaiveIndex()
    open_expectations: list[tuple[str, int]] = []
    for _ in range(300):
        one_random_operation(rng, tree, model, open_expectations)
        check_invariants(tree)
        probe = "".join(rng.choice("ab") for _ in range(12))
        assert holdings(tree, probe) == model.holdings(probe)
    assert tree.num_blocks == model.num_known()
    assert counts == {bit: len(model.held[bit] | model.expected[bit]) for bit in counts}


@pytest.mark.parametrize("seed", range(5))
def test_a_small_tree_stays_bounded_and_never_claims_what_nobody_said(seed: int) -> None:
    rng = random.Random(seed)
    tree, said = RadixTree(BLOCK, 8), {A: set[bytes](), B: set[bytes]()}
    for _ in range(400):
        text = "".join(rng.choice("abc") for _ in range(rng.randrange(2, 12)))
        bit = rng.choice((A, B))
        if rng.random() < 0.7:
            tree.expect(ROOT, packed(text), bit)
            said[bit] |= set(names(text))
        else:
            tree.remove(names(text), bit)
            said[bit] -= set(names(text))
        check_invariants(tree)
        assert tree.num_blocks <= 8
        for worker, num_blocks in holdings(tree, text).items():
            assert said[worker].issuperset(names(text)[:num_blocks])
