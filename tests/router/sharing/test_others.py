"""What is believed of other routers, and for how long."""

from cluster.identity import WorkerKey
from router.fleet.request_share import NOTHING_ELSEWHERE, GivenElsewhere, RequestShare
from router.sharing.others import LEASE_S, SILENT_S, OtherRouters
from router.sharing.word import (
    MAX_WORD_BYTES,
    VERSION,
    RouterWord,
    WorkerWord,
    packed_word,
    word_of,
)

WORKER = WorkerKey("prefill-1", "i1")


def word(**requests: RequestShare) -> bytes:
    of_worker = WorkerWord(WORKER.worker_id, WORKER.incarnation, requests)
    return packed_word(RouterWord(VERSION, [of_worker]))


def test_what_others_have_given_a_worker_is_summed_up_and_each_request_counts_once() -> None:
    others = OtherRouters()
    moved = RequestShare(50, 50)
    others.heard({"b": word(r1=RequestShare(100, 40), r2=moved), "c": word(r2=moved)}, 0.0)
    others.heard({"b": word(r1=RequestShare(100, 0), r2=moved), "c": word(r2=moved)}, 0.1)
    assert others.given_to(WORKER, own={}) == GivenElsewhere(2, 150, 50, 1, num_seqs=2)
    assert others.given_to(WORKER, own={"r2": object()}) == GivenElsewhere(1, 100, 0, 0, num_seqs=1)
    assert others.given_to(WorkerKey("prefill-1", "i2"), own={}) == NOTHING_ELSEWHERE


def test_what_a_dead_router_had_said_falls_with_it() -> None:
    others = OtherRouters()
    others.heard({"b": word(r1=RequestShare(100, 40)), "c": word()}, 0.0)
    assert others.num_alive == 3
    others.heard({"c": word()}, SILENT_S + 0.1)
    assert others.names == ["c"]
    assert others.given_to(WORKER, own={}) == NOTHING_ELSEWHERE


def test_what_a_killed_router_had_said_is_not_believed_though_its_word_lies_in_the_store() -> None:
    """For its lease: it is counted so long, but holds no seats, and has no line."""
    others = OtherRouters()
    requests = {"r1": RequestShare(100, 40)}
    of_worker = WorkerWord(WORKER.worker_id, WORKER.incarnation, requests)
    said = [packed_word(RouterWord(VERSION, [of_worker], waits=True, beat=beat)) for beat in (1, 2)]
    for at_s, packed in ((0.0, said[0]), (SILENT_S, said[0]), (SILENT_S + 0.1, said[1])):
        others.heard({"b": packed}, at_s)
        assert others.given_to(WORKER, own={}).num_requests == 1 and others.waiting == ["b"]
    others.heard({"b": said[1]}, 2 * SILENT_S + 0.2)
    assert others.num_alive == 2
    assert others.given_to(WORKER, own={}) == NOTHING_ELSEWHERE and not others.waiting
    others.heard({"b": said[0]}, 3 * SILENT_S)
    assert others.given_to(WORKER, own={}).num_requests == 1, "it only stood still"


def test_a_store_that_was_away_makes_nobody_dead() -> None:
    others = OtherRouters()
    packed = packed_word(RouterWord(VERSION, [], waits=True, beat=1))
    others.heard({"b": packed}, 0.0)
    others.unheard(SILENT_S)
    others.heard({"b": packed}, 3 * SILENT_S)
    assert others.waiting == ["b"]


def test_whose_word_stood_still_before_the_store_went_is_not_believed_when_it_comes() -> None:
    """Dead, it had another second by each return of the store."""
    others = OtherRouters()
    packed = packed_word(RouterWord(VERSION, [], waits=True, beat=1))
    others.heard({"b": packed}, 0.0)
    others.heard({"b": packed}, SILENT_S + 0.1)
    assert not others.waiting
    others.unheard(2 * SILENT_S)
    others.heard({"b": packed}, 3 * SILENT_S)
    assert others.num_alive == 2 and not others.waiting
    others.unheard(4 * SILENT_S)
    others.heard({"b": packed_word(RouterWord(VERSION, [], waits=True, beat=2))}, 5 * SILENT_S)
    assert others.waiting == ["b"], "it lives"


def test_a_store_that_comes_and_goes_gives_a_dead_router_one_second_in_all() -> None:
    others = OtherRouters()
    packed = packed_word(RouterWord(VERSION, [], waits=True, beat=1))
    now_s = 0.0
    others.heard({"b": packed}, now_s)
    for _ in range(4):
        others.unheard(now_s + 1.0)
        now_s += 2.0
        others.heard({"b": packed}, now_s)
        now_s += SILENT_S / 3
        others.heard({"b": packed}, now_s)
    assert not others.waiting


def test_a_store_that_was_emptied_costs_nobody_its_place() -> None:
    others = OtherRouters()
    said = word(r1=RequestShare(100, 40))
    others.heard({"b": said}, 0.0)
    others.heard({}, SILENT_S / 2)
    assert others.num_alive == 2
    others.heard({"b": said}, SILENT_S)
    others.heard({}, SILENT_S * 1.9)
    assert others.num_alive == 2


def test_without_a_store_the_number_of_routers_stays_and_what_they_had_said_ends_with_a_lease() -> (
    None
):
    others = OtherRouters()
    said = word(r1=RequestShare(100, 40))
    others.heard({"b": said}, 0.0)
    others.unheard(LEASE_S - 1)
    assert others.given_to(WORKER, own={}).num_requests == 1
    others.unheard(LEASE_S + 1)
    assert others.given_to(WORKER, own={}) == NOTHING_ELSEWHERE
    assert others.num_alive == 2
    others.heard({}, LEASE_S + 2)  # it is back, and empty
    assert others.num_alive == 2
    others.heard({"b": said}, LEASE_S + 2)
    assert others.given_to(WORKER, own={}).num_requests == 1


def test_a_word_that_nobody_understands_is_a_router_that_says_nothing() -> None:
    others = OtherRouters()
    others.heard({"b": b"\xff\x00", "c": b"\x92\x02\x90"}, 0.0)
    assert others.num_alive == 3
    assert list(others.words()) == []


def test_a_word_that_would_be_too_long_names_no_requests() -> None:
    many = {f"request-{n:060d}": RequestShare(n, n) for n in range(MAX_WORD_BYTES // 60)}
    said = word_of(packed_word(RouterWord(VERSION, [WorkerWord("w", "i", many)])))
    assert said is not None and said.workers == [WorkerWord("w", "i", {})]
