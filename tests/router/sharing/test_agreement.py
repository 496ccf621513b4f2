"""Routers that believe something else of a cache are told apart from routers that hear it later."""

from cluster.identity import WorkerKey
from router.sharing.agreement import LASTING_S, MAX_REMEMBERED, Agreement
from router.sharing.word import CacheMark, WorkerWord

WORKER = WorkerKey("prefill-1", "i1")


def said(sequence: int, digest: int) -> list[tuple[str, WorkerWord]]:
    mark = CacheMark(sequence, digest, 1)
    return [("b", WorkerWord(WORKER.worker_id, WORKER.incarnation, {}, mark))]


def knowing(**digests: int) -> Agreement:
    agreement = Agreement()
    for sequence, digest in digests.items():
        agreement.believed({WORKER: CacheMark(int(sequence[1:]), digest, 1)})
    return agreement


def test_who_is_behind_or_ahead_disagrees_with_nobody() -> None:
    agreement = knowing(s5=50, s6=60)
    for now_s in (0.0, LASTING_S, 2 * LASTING_S):
        assert agreement.compare(said(5, 50), now_s) == []
        assert agreement.compare(said(7, 71), now_s) == []
    assert agreement.disagreeing == ()


def test_another_belief_at_the_same_point_counts_once_it_has_lasted() -> None:
    agreement = knowing(s5=50)
    assert agreement.compare(said(5, 51), 0.0) == []
    assert agreement.compare(said(6, 61), LASTING_S / 2) == []  # not known here: no news
    assert agreement.compare(said(5, 51), LASTING_S) == [("b", WORKER)]
    assert agreement.compare(said(5, 51), LASTING_S + 1) == []  # told already
    assert agreement.disagreeing == (("b", WORKER),)


def test_routers_that_have_agreed_meanwhile_begin_anew() -> None:
    agreement = knowing(s5=50, s6=60)
    agreement.compare(said(5, 51), 0.0)
    agreement.compare(said(6, 60), LASTING_S - 1)
    assert agreement.compare(said(5, 51), LASTING_S) == []
    assert agreement.disagreeing == ()


def test_who_is_gone_disagrees_no_more_and_few_points_are_remembered() -> None:
    agreement = knowing(**{f"s{number}": number for number in range(2 * MAX_REMEMBERED)})
    agreement.compare(said(2 * MAX_REMEMBERED - 1, 0), 0.0)
    assert agreement.compare(said(2 * MAX_REMEMBERED - 1, 0), LASTING_S) == [("b", WORKER)]
    assert agreement.compare([], LASTING_S) == []
    assert agreement.disagreeing == ()
    agreement.compare(said(0, 1), 0.0)
    assert agreement.compare(said(0, 1), LASTING_S) == []
