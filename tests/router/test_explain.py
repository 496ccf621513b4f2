"""The log of decisions."""

from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from router.explain import MAX_CANDIDATES, Decision, DecisionLog, render
from router.policy import choose_route
from router.route import PrefillSpeed, RoutingView, WorkerView


def workers(role: str, count: int) -> tuple[WorkerView, ...]:
    return tuple(
        WorkerView(
            key=WorkerKey(f"{role}-{number}", "i"), pairing_key="x", speed=PrefillSpeed(5, 0.5)
        )
        for number in range(1, count + 1)
    )


def decision(request_id: str, fleet_size: int = 1) -> Decision:
    view = RoutingView(
        prompt_tokens=40,
        max_tokens=10,
        block_size_tokens=16,
        decode=workers("decode", fleet_size),
        prefill=workers("prefill", fleet_size),
        handoff_ms=5.0,
    )
    return Decision(request_id, view, choose_route(view), notes=("prefill-2 cannot pair",))


def test_the_last_decisions_are_kept_and_the_oldest_goes() -> None:
    log = DecisionLog(max_decisions=2)
    for number in range(3):
        log.record(decision(f"r{number}"))
    assert log.find("r0") is None
    assert log.find("r2") is not None


def test_a_decision_shows_every_candidates_terms_the_notes_and_the_outcome() -> None:
    log = DecisionLog()
    log.record(decision("r1"))
    text = render(log.find("r1") or decision("?"))
    assert "* prefill-1 -> decode-1" in text
    assert "(alone) -> decode-1" in text
    for term in ("queue", "prefill", "transfer", "handoff", "interference", "decode", "memory"):
        assert term in text.splitlines()[1]
    assert "note: prefill-2 cannot pair" in text
    assert "not known" in text
    log.finished("r1", Usage(40, 3, 16), Timing(ttft_ms=30.0, prefill_ms=25.0))
    log.finished("unknown", Usage(1, 1, 0), Timing())
    text = render(log.find("r1") or decision("?"))
    assert "ttft 30.0 ms" in text
    assert "16 of 40 prompt tokens were cached" in text


def test_of_a_large_fleets_decision_the_cheapest_candidates_are_kept() -> None:
    log = DecisionLog()
    log.record(decision("r1", fleet_size=50))
    kept = log.find("r1")
    assert kept is not None
    assert len(kept.route.candidates) == MAX_CANDIDATES
    assert kept.route.chosen in kept.route.candidates
    assert len(kept.view.decode) + len(kept.view.prefill) <= 2 * MAX_CANDIDATES
    assert kept.expected_tokens == 0
