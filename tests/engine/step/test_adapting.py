"""Which adapters are in the bank: room, turns, versions that leave, files that fail."""

from __future__ import annotations

import random

import pytest

from cluster.errors import AdapterGone, AdapterUnread, RankLost, SplitserveError
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


def entered(adapting: Adapting, digest: str) -> AdapterUse:
    """A request that comes, and the turn after it."""
    use = adapting.enter(digest)
    adapting.turn()
    return use


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
    entered(adapting, "a").leave()
    known(adapting, ("c", 8))
    entered(adapting, "c")  # b gives way
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
    use = entered(adapting, "a")
    assert use.slot is not None and ranks.placed[use.slot].digest == "a"
    with pytest.raises(AdapterGone, match="has not loaded the adapter z"):
        entered(adapting, "z")


def test_the_least_lately_used_gives_way_and_comes_back_when_it_is_asked_for(
    adapting: Adapting, ranks: ScriptedRanks
) -> None:
    known(adapting, ("a", 16), ("b", 16), ("c", 16))
    entered(adapting, "a").leave()
    use = entered(adapting, "c")  # b was used less lately than a
    adapting.turn()
    assert use.slot is not None and ranks.placed[use.slot].digest == "c"
    assert sorted(stage.digest for stage in ranks.placed.values()) == ["a", "c"]
    again = entered(adapting, "b")
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
    least_lately, other = entered(held, "a"), entered(held, "b")
    waiting, soon = entered(held, "c"), entered(held, "b")
    assert (waiting.slot, soon.slot) == (None, other.slot)
    clock.now_s += PASSED_S
    held.turn()
    late, another = entered(held, "a"), entered(held, "b")
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
    users = {name: entered(held, name) for name, _ in residents}
    waiting = entered(held, "stranger")
    turns(held, clock, 2, each_s=PASSED_S)
    for _ in range(20):
        late = {name: entered(held, name) for name, _ in residents}
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
    stays, goes = entered(held, "a"), entered(held, "b")
    waiting = entered(held, "c")
    turns(held, clock, 2, each_s=PASSED_S)
    goes.leave()
    late = entered(held, "a")
    turns(held, clock)
    assert waiting.slot is not None and ranks.placed[waiting.slot].digest == "c"
    assert late.slot == stays.slot


def test_one_that_was_to_give_way_is_let_in_again_when_nobody_waits_for_its_room(
    held: Adapting, clock: HeldClock
) -> None:
    known_slowly(held, clock, ("a", 16), ("b", 16), ("c", 16))
    first = [entered(held, "a"), entered(held, "b")]
    gone = entered(held, "c")
    turns(held, clock, 2, each_s=PASSED_S)
    late = entered(held, "a")
    assert late.slot is None
    gone.leave()
    held.turn()
    assert late.slot == first[0].slot
    assert held.check_invariants() == []


def test_one_that_was_to_give_way_and_is_unloaded_first_leaves_its_room(
    held: Adapting, clock: HeldClock, ranks: ScriptedRanks
) -> None:
    known_slowly(held, clock, ("a", 16), ("b", 16), ("c", 32))
    users = [entered(held, "a"), entered(held, "b")]
    waiting = entered(held, "c")
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
        waiting.append((now, entered(held, chance.choice(list(sizes)))))
        a_turn = 8 + PASSED_S + 3  # the longest answer, and reading
        assert all(now - since <= len(sizes) * a_turn for since, _ in waiting)
        assert held.check_invariants() == []


def test_who_passes_takes_no_room_that_somebody_waits_for(ranks: ScriptedRanks) -> None:
    clock = HeldClock()
    adapting = Adapting(ranks, clock=clock)
    for digest, rank in (("a", 16), ("idle", 16), ("b", 32), ("c", 8)):
        clock.now_s += 1.0
        known(adapting, (digest, rank))
    holder, waiting, behind = (entered(adapting, digest) for digest in "abc")
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
    holder, waiting = entered(adapting, "a"), entered(adapting, "b")
    adapting.take_news()
    known(adapting, ("c", 8))
    assert adapting.take_news() == [AdapterNews("c", is_resident=False)]
    assert not adapting.is_busy
    late = entered(adapting, "c")
    holder.leave()
    waiting.leave()
    for _ in range(2):
        adapting.turn()
    assert late.slot is not None


def test_who_waits_for_files_is_passed(adapting: Adapting, ranks: ScriptedRanks) -> None:
    known(adapting, ("a", 8))
    ranks.progress = Staged.READING
    known(adapting, ("b", 8))
    slow, quick = entered(adapting, "b"), entered(adapting, "a")
    assert slow.slot is None and quick.slot is not None
    ranks.progress = Staged.READ
    adapting.turn()
    assert slow.slot is not None


def test_one_that_is_unloaded_stays_for_those_who_have_it(
    adapting: Adapting, ranks: ScriptedRanks
) -> None:
    known(adapting, ("a", 8))
    use = entered(adapting, "a")
    adapting.unload(UnloadAdapter("a"))
    with pytest.raises(AdapterGone):
        entered(adapting, "a")
    assert len(ranks.placed) == 1
    use.leave()
    adapting.turn()
    assert ranks.placed == {}
    assert adapting.check_invariants() == []


def test_one_that_is_unloaded_while_it_is_read_is_never_told_to_be_there(
    adapting: Adapting, ranks: ScriptedRanks
) -> None:
    ranks.progress = Staged.READING
    known(adapting, ("a", 8))
    waiting = entered(adapting, "a")
    adapting.unload(UnloadAdapter("a"))
    ranks.progress = Staged.READ
    adapting.turn()
    assert (adapting.take_news(), ranks.placed) == ([], {})
    assert isinstance(waiting.error, AdapterGone)
    assert adapting.check_invariants() == []


class LosableRanks(ScriptedRanks):
    """A group of which one is lost at some moment: no call of all of them ends well then."""

    is_lost = False

    def follow(self, word: AdapterWord) -> Staged:
        if self.is_lost:
            raise RankLost("rank 1 has ended")
        return super().follow(word)


def test_a_request_comes_and_ends_as_ever_while_a_rank_is_lost_which_the_turn_says() -> None:
    ranks = LosableRanks()
    adapting = Adapting(ranks, clock=Clock())
    known(adapting, ("a", 8))
    use = entered(adapting, "a")
    ranks.is_lost = True
    late = adapting.enter("a")
    adapting.unload(UnloadAdapter("a"))
    use.leave()
    late.leave()
    with pytest.raises(RankLost):
        adapting.turn()


def test_files_that_cannot_be_read_fail_who_waits_and_nobody_else(
    adapting: Adapting, ranks: ScriptedRanks
) -> None:
    known(adapting, ("a", 16), ("b", 16), ("c", 16))
    adapting.take_news()
    ranks.progress, ranks.failure = Staged.FAILED, AdapterUnread("the files have changed")
    use = entered(adapting, "c")
    adapting.turn()
    assert use.slot is None
    assert isinstance(use.error, AdapterGone) and "have changed" in use.error.message
    (*_, news) = adapting.take_news()
    assert news == AdapterNews("c", is_resident=False, failure=use.error.message, may_pass=True)
    assert entered(adapting, "b").slot is not None  # a had to give way
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
    ranks.progress = chance.choices(list(Staged), weights=(1, 1, 4, 8))[0]
    match chance.choice(["load", "unload", "enter", "enter", "leave", "leave", "turn"]):
        case "load":
            adapting.load(
                LoadAdapter(digest=digest, root="/r", folder="/r/x", lora_rank=sizes[digest])
            )
        case "unload" if chance.random() < 0.3:
            adapting.unload(UnloadAdapter(digest))
        case "enter":
            try:
                uses.append(entered(adapting, digest))
            except AdapterGone:
                return
        case "leave" if uses:
            uses.pop(chance.randrange(len(uses))).leave()
        case "turn":
            adapting.turn()
