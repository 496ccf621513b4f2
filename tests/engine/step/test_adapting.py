"""Which adapters are in the bank: room, turns, versions that leave, files that fail."""

from __future__ import annotations

import random

import pytest

from cluster.errors import AdapterGone, AdapterUnread, SplitserveError
from engine.contract.adapters import AdapterNews, LoadAdapter, UnloadAdapter
from engine.model.adapters.bank import AdapterRoom
from engine.model.adapters.rank_adapters import Staged
from engine.model.adapters.words import AdapterWord, ClearAdapter, SettleAdapter, StageAdapter
from engine.step.adapting import PASSED_S, Adapting
from engine.step.requests.adapter_use import AdapterUse


class ScriptedRanks:
    """ReplicaAdapters whose files are read when the test says so; it remembers what lies where."""

    def __init__(self, num_lora_ranks: int = 32, num_slots: int = 9) -> None:
        self.room = AdapterRoom(num_lora_ranks=num_lora_ranks, num_slots=num_slots)
        self.lora_rank_bytes = 0
        self.failure: SplitserveError | None = None
        self.progress = Staged.READ
        self.staged: StageAdapter | None = None
        self.placed: dict[int, StageAdapter] = {}

    def follow(self, word: AdapterWord) -> Staged:
        match word:
            case StageAdapter():
                assert self.staged is None, "one at a time"
                assert word.slot not in self.placed and word.slot != 0
                assert 0 < word.lora_rank <= self.room.num_lora_ranks - word.start
                self.staged = word
            case SettleAdapter():
                staged = self.staged
                assert staged is not None
                if self.progress is not Staged.READING:
                    self.staged = None
                if self.progress is Staged.READ:
                    self.placed[staged.slot] = staged
                return self.progress
            case ClearAdapter():
                del self.placed[word.slot]
        return Staged.READING


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


class HeldClock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def known(adapting: Adapting, *adapters: tuple[str, int]) -> None:
    for digest, rank in adapters:
        adapting.load(LoadAdapter(digest=digest, root="/r", folder=f"/r/{digest}", lora_rank=rank))
    for _ in range(2 * len(adapters)):
        adapting.turn()


@pytest.fixture
def ranks() -> ScriptedRanks:
    return ScriptedRanks()


@pytest.fixture
def adapting(ranks: ScriptedRanks) -> Adapting:
    return Adapting(ranks, clock=Clock())


def test_one_that_is_loaded_is_read_at_once_where_there_is_room(
    adapting: Adapting, ranks: ScriptedRanks
) -> None:
    known(adapting, ("a", 16), ("b", 16), ("c", 8))
    assert adapting.take_news() == [
        AdapterNews("a", is_resident=True),
        AdapterNews("b", is_resident=True),
        AdapterNews("c", is_resident=False),
    ]
    assert not adapting.is_busy
    assert sorted(stage.digest for stage in ranks.placed.values()) == ["a", "b"]


def test_the_memory_that_an_adapter_takes_is_told_while_it_is_there(
    adapting: Adapting, ranks: ScriptedRanks
) -> None:
    ranks.lora_rank_bytes = 100
    known(adapting, ("a", 16), ("b", 16))
    adapting.enter("a").leave()
    known(adapting, ("c", 8))
    adapting.enter("c")  # b gives way
    adapting.turn()
    told = [(news.digest, news.is_resident, news.num_bytes) for news in adapting.take_news()]
    assert told == [
        ("a", True, 1600),
        ("b", True, 1600),
        ("c", False, 0),
        ("b", False, 0),
        ("c", True, 800),
    ]


def test_a_request_gets_the_slot_of_its_adapter_and_one_unknown_is_refused(
    adapting: Adapting, ranks: ScriptedRanks
) -> None:
    known(adapting, ("a", 8))
    use = adapting.enter("a")
    assert use.slot is not None and ranks.placed[use.slot].digest == "a"
    with pytest.raises(AdapterGone, match="has not loaded the adapter z"):
        adapting.enter("z")


def test_the_least_lately_used_gives_way_and_comes_back_when_it_is_asked_for(
    adapting: Adapting, ranks: ScriptedRanks
) -> None:
    known(adapting, ("a", 16), ("b", 16), ("c", 16))
    adapting.enter("a").leave()
    use = adapting.enter("c")  # b was used less lately than a
    adapting.turn()
    assert use.slot is not None and ranks.placed[use.slot].digest == "c"
    assert sorted(stage.digest for stage in ranks.placed.values()) == ["a", "c"]
    again = adapting.enter("b")
    adapting.turn()
    assert again.slot is not None and ranks.placed[again.slot].digest == "b"


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def held(ranks: ScriptedRanks, clock: HeldClock) -> Adapting:
    return Adapting(ranks, clock=clock)


def turns(adapting: Adapting, clock: HeldClock, num_turns: int = 2, *, each_s: float = 1.0) -> None:
    for _ in range(num_turns):
        clock.now_s += each_s
        adapting.turn()


def known_slowly(adapting: Adapting, clock: HeldClock, *adapters: tuple[str, int]) -> None:
    for adapter in adapters:
        clock.now_s += 1.0
        known(adapting, adapter)


def test_none_goes_under_a_request_that_has_it_and_who_lacks_room_is_passed_for_a_while(
    held: Adapting, clock: HeldClock
) -> None:
    known_slowly(held, clock, ("a", 16), ("b", 16), ("c", 16))
    least_lately, other = held.enter("a"), held.enter("b")
    waiting, soon = held.enter("c"), held.enter("b")
    assert (waiting.slot, soon.slot) == (None, other.slot)
    clock.now_s += PASSED_S
    held.turn()
    late, another = held.enter("a"), held.enter("b")
    assert (waiting.slot, late.slot, another.slot) == (None, None, other.slot)
    least_lately.leave()
    turns(held, clock)
    assert waiting.slot is not None and late.slot is None
    assert (other.slot, another.slot) == (soon.slot, soon.slot)


def test_an_adapter_that_lacks_room_stops_no_other_than_those_that_give_way_for_it(
    held: Adapting, clock: HeldClock
) -> None:
    residents = [(name, 4) for name in "abcdefgh"]
    known_slowly(held, clock, *residents, ("stranger", 8))
    users = {name: held.enter(name) for name, _ in residents}
    waiting = held.enter("stranger")
    turns(held, clock, 2, each_s=PASSED_S)
    for _ in range(20):
        late = {name: held.enter(name) for name, _ in residents}
        turns(held, clock)
        assert [name for name, use in late.items() if use.slot is None] == ["a", "b"]
        for use in late.values():
            use.leave()
    users["a"].leave()
    turns(held, clock)
    assert waiting.slot is None
    users["b"].leave()
    turns(held, clock)
    assert waiting.slot is not None
    assert held.check_invariants() == []


def test_room_that_becomes_free_elsewhere_is_taken_at_once(
    held: Adapting, clock: HeldClock, ranks: ScriptedRanks
) -> None:
    known_slowly(held, clock, ("a", 16), ("b", 16), ("c", 16))
    stays, goes = held.enter("a"), held.enter("b")
    waiting = held.enter("c")
    turns(held, clock, 2, each_s=PASSED_S)
    goes.leave()
    late = held.enter("a")
    turns(held, clock)
    assert waiting.slot is not None and ranks.placed[waiting.slot].digest == "c"
    assert late.slot == stays.slot


def test_one_that_was_to_give_way_is_let_in_again_when_nobody_waits_for_its_room(
    held: Adapting, clock: HeldClock
) -> None:
    known_slowly(held, clock, ("a", 16), ("b", 16), ("c", 16))
    first = [held.enter("a"), held.enter("b")]
    gone = held.enter("c")
    turns(held, clock, 2, each_s=PASSED_S)
    late = held.enter("a")
    assert late.slot is None
    gone.leave()
    held.turn()
    assert late.slot == first[0].slot
    assert held.check_invariants() == []


def test_one_that_was_to_give_way_and_is_unloaded_first_leaves_its_room(
    held: Adapting, clock: HeldClock, ranks: ScriptedRanks
) -> None:
    known_slowly(held, clock, ("a", 16), ("b", 16), ("c", 32))
    users = [held.enter("a"), held.enter("b")]
    waiting = held.enter("c")
    turns(held, clock, 2, each_s=PASSED_S)
    held.unload(UnloadAdapter("a"))
    for use in users:
        use.leave()
    turns(held, clock)
    assert waiting.slot is not None
    assert [stage.digest for stage in ranks.placed.values()] == ["c"]


@pytest.mark.parametrize("seed", range(10))
def test_whoever_lacks_room_is_served_in_turn_while_newcomers_never_end(seed: int) -> None:
    """Answers take eight turns of a second; each of the adapters is asked for all the time."""
    chance, clock = random.Random(seed), HeldClock()
    held = Adapting(ScriptedRanks(num_lora_ranks=24, num_slots=5), clock=clock)
    sizes = {"a": 8, "b": 16, "c": 3, "d": 24, "e": 8, "f": 1}
    known_slowly(held, clock, *sizes.items())
    waiting: list[tuple[int, AdapterUse]] = []
    running: list[tuple[int, AdapterUse]] = []
    for now in range(1000):
        clock.now_s += 1.0
        held.turn()
        for since, use in [each for each in waiting if each[1].slot is not None]:
            waiting.remove((since, use))
            running.append((now + 8, use))
        for end, use in [each for each in running if each[0] <= now]:
            running.remove((end, use))
            use.leave()
        waiting.append((now, held.enter(chance.choice(list(sizes)))))
        a_turn = 8 + PASSED_S + 3  # the longest answer, and reading
        assert all(now - since <= len(sizes) * a_turn for since, _ in waiting)
        assert held.check_invariants() == []


def test_who_passes_takes_no_room_that_somebody_waits_for(ranks: ScriptedRanks) -> None:
    clock = HeldClock()
    adapting = Adapting(ranks, clock=clock)
    for digest, rank in (("a", 16), ("idle", 16), ("b", 32), ("c", 8)):
        clock.now_s += 1.0
        known(adapting, (digest, rank))
    holder, waiting, behind = (adapting.enter(digest) for digest in "abc")
    adapting.turn()
    assert (waiting.slot, behind.slot) == (None, None)  # c would fit beside a, in the place of idle
    holder.leave()
    clock.now_s += 1.0
    adapting.turn()
    clock.now_s += 1.0
    adapting.turn()
    assert waiting.slot is not None


def test_one_that_is_loaded_while_others_wait_for_room_may_be_asked_for_at_once(
    adapting: Adapting,
) -> None:
    known(adapting, ("a", 32), ("b", 32))
    holder, waiting = adapting.enter("a"), adapting.enter("b")
    adapting.take_news()
    known(adapting, ("c", 8))
    assert adapting.take_news() == [AdapterNews("c", is_resident=False)]
    assert not adapting.is_busy
    late = adapting.enter("c")
    holder.leave()
    waiting.leave()
    for _ in range(2):
        adapting.turn()
    assert late.slot is not None


def test_who_waits_for_files_is_passed(adapting: Adapting, ranks: ScriptedRanks) -> None:
    known(adapting, ("a", 8))
    ranks.progress = Staged.READING
    known(adapting, ("b", 8))
    slow, quick = adapting.enter("b"), adapting.enter("a")
    assert slow.slot is None and quick.slot is not None
    ranks.progress = Staged.READ
    adapting.turn()
    assert slow.slot is not None


def test_one_that_is_unloaded_stays_for_those_who_have_it(
    adapting: Adapting, ranks: ScriptedRanks
) -> None:
    known(adapting, ("a", 8))
    use = adapting.enter("a")
    adapting.unload(UnloadAdapter("a"))
    with pytest.raises(AdapterGone):
        adapting.enter("a")
    assert len(ranks.placed) == 1
    use.leave()
    assert ranks.placed == {}
    assert adapting.check_invariants() == []


def test_files_that_cannot_be_read_fail_who_waits_and_nobody_else(
    adapting: Adapting, ranks: ScriptedRanks
) -> None:
    known(adapting, ("a", 16), ("b", 16), ("c", 16))
    adapting.take_news()
    ranks.progress, ranks.failure = Staged.FAILED, AdapterUnread("the files have changed")
    use = adapting.enter("c")
    adapting.turn()
    assert use.slot is None
    assert isinstance(use.error, AdapterGone) and "have changed" in use.error.message
    (*_, news) = adapting.take_news()
    assert news == AdapterNews("c", is_resident=False, failure=use.error.message, may_pass=True)
    assert adapting.enter("b").slot is not None  # a had to give way
    assert adapting.check_invariants() == []


def test_one_with_more_ranks_than_there_is_room_for_is_refused(adapting: Adapting) -> None:
    known(adapting, ("a", 33))
    (news,) = adapting.take_news()
    assert "its rank is 33, and there is room for 32" in news.failure and not news.may_pass


@pytest.mark.parametrize("seed", range(30))
def test_whatever_comes_slots_are_right_and_nothing_is_lost(seed: int) -> None:
    """Two thousand commands: a slot that a request has is always that of its adapter."""
    chance, ranks = random.Random(seed), ScriptedRanks(num_lora_ranks=24, num_slots=5)
    adapting = Adapting(ranks, clock=Clock())
    sizes = {"a": 8, "b": 16, "c": 3, "d": 24, "e": 8, "f": 1}
    uses: list[AdapterUse] = []
    loaded: set[str] = set()
    for _ in range(2000 // 10):
        for _ in range(10):
            _random_command(chance, adapting, ranks, sizes, uses, loaded)
        adapting.turn()
        for use in uses:
            if use.slot is not None:
                assert ranks.placed[use.slot].digest == use.digest
        runs = sorted((stage.start, sizes[stage.digest]) for stage in ranks.placed.values())
        assert all(a + size <= b for (a, size), (b, _) in zip(runs, runs[1:], strict=False))
        assert adapting.check_invariants() == []
    ranks.progress = Staged.READ
    for use in uses:
        use.leave()
    for digest in sizes:
        adapting.unload(UnloadAdapter(digest))
    for _ in range(4):
        adapting.turn()
    assert ranks.placed == {}


def _random_command(
    chance: random.Random,
    adapting: Adapting,
    ranks: ScriptedRanks,
    sizes: dict[str, int],
    uses: list[AdapterUse],
    loaded: set[str],
) -> None:
    digest = chance.choice(list(sizes))
    ranks.progress = chance.choices(list(Staged), weights=(1, 4, 8))[0]
    match chance.choice(["load", "unload", "enter", "enter", "leave", "leave", "turn"]):
        case "load":
            adapting.load(
                LoadAdapter(digest=digest, root="/r", folder="/r/x", lora_rank=sizes[digest])
            )
        case "unload" if chance.random() < 0.3:
            adapting.unload(UnloadAdapter(digest))
        case "enter":
            try:
                uses.append(adapting.enter(digest))
            except AdapterGone:
                return
        case "leave" if uses:
            uses.pop(chance.randrange(len(uses))).leave()
        case "turn":
            adapting.turn()
