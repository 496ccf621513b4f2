"""The log of decisions."""

import pytest

from cluster.generation import Timing, Usage
from cluster.identity import WorkerKey
from router.control.decision_message import NOT_ROUTED, decision_to_wire, unrouted_to_wire
from router.pricing.policy import choose_route
from router.pricing.route import Cost, PrefillSpeed, RoutingView, WorkerView
from router.telemetry.decisions import MAX_ANSWERS, MAX_CANDIDATES, Decision, DecisionLog
from router.telemetry.request_arrival import RequestArrival
from router.tenants.priority import Priority


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


def notes_of(log: DecisionLog, request_id: str) -> tuple[str, ...]:
    found = log.find(request_id)
    assert found is not None
    return found.notes


def test_what_is_noted_about_a_request_is_kept_once_where_it_was_said_last() -> None:
    log = DecisionLog()
    log.record(decision("r0"))
    for words in ("by one", "by another", "by one"):
        log.note("r0", words)
    assert notes_of(log, "r0") == ("prefill-2 cannot pair", "by another", "by one")
    log.note("unknown", "by one")
    assert log.find("unknown") is None


def test_what_is_noted_before_a_request_is_routed_or_routed_anew_is_kept() -> None:
    log = DecisionLog()
    log.note("r0", "by one")
    log.record(decision("r0"))
    assert notes_of(log, "r0") == ("by one", "prefill-2 cannot pair")
    log.note("r0", "by another")
    log.record(decision("r0"))
    assert notes_of(log, "r0") == ("by one", "by another", "prefill-2 cannot pair")


def test_notes_of_so_many_requests_are_kept_and_no_more() -> None:
    log = DecisionLog(max_decisions=2)
    for number in range(3):
        log.note(f"r{number}", "by one")
    for number in range(3):
        log.record(decision(f"r{number}"))
        is_kept = "by one" in notes_of(log, f"r{number}")
        assert is_kept is (number > 0)


def test_a_decision_is_found_by_the_clients_own_id_newest_first() -> None:
    log = DecisionLog()
    names = ["mine", "mine-0123456789ab", "mine-ba9876543210-0", "mine-ba9876543210-1"]
    others = ["mine-1-0123456789ab", "miner-0123456789ab", "mine-0123456789az", "yours", "min"]
    for name in (*names, *others):
        log.record(decision(name))
    assert [found.request_id for found in log.known_as("mine")] == names[::-1]
    assert [found.request_id for found in log.known_as("mine-0123456789ab")] == [names[1]]
    assert [found.request_id for found in log.known_as(f"cmpl-{names[1]}")] == [names[1]]
    assert [found.request_id for found in log.known_as(f"chatcmpl-{names[1]}")] == [names[1]]
    assert log.known_as("unknown") == []


def test_an_id_that_everybody_sends_shows_the_last_few_decisions() -> None:
    log = DecisionLog()
    for number in range(MAX_ANSWERS + 4):
        log.record(decision(f"test-{number:012x}"))
    found = log.known_as("test")
    assert len(found) == MAX_ANSWERS
    assert found[0].request_id == f"test-{MAX_ANSWERS + 3:012x}"


def test_a_decision_tells_every_candidates_terms_the_notes_and_the_outcome() -> None:
    log = DecisionLog()
    log.record(decision("r1"))
    [found] = log.known_as("r1")
    told = decision_to_wire(found)
    assert {(c.prefill_worker, c.decode_worker) for c in told.candidates} == {
        ("", "decode-1"),
        ("prefill-1", "decode-1"),
    }
    for candidate in told.candidates:
        terms = (getattr(candidate, name) for name in Cost.__struct_fields__)
        assert candidate.total_ms == pytest.approx(sum(terms)) and candidate.total_ms > 0
    assert [c.prefill_worker for c in told.candidates if c.chosen] == ["prefill-1"]
    assert [worker.worker_id for worker in told.workers] == ["decode-1", "prefill-1"]
    assert list(told.notes) == ["prefill-2 cannot pair"]
    assert not told.HasField("usage") and not told.HasField("timing")
    log.finished("r1", Usage(40, 3, 16), Timing(ttft_ms=30.0, prefill_ms=25.0))
    log.finished("unknown", Usage(1, 1, 0), Timing())
    told = decision_to_wire(found)
    assert (told.usage.cached_tokens, told.timing.ttft_ms) == (16, 30.0)


def test_a_request_is_told_with_what_it_met_what_was_foretold_and_how_it_ended() -> None:
    log = DecisionLog()
    log.came(RequestArrival("r1", "acme", Priority.BATCH))
    met = log.arrival_of("r1")
    assert met is not None
    met.waits(12.0, 30, 240.0, "no seat")
    [waiting] = log.unrouted("r1")
    told = unrouted_to_wire(waiting)
    assert (told.reason, told.arrival.num_before, told.arrival.waited) == (NOT_ROUTED, 12.0, True)
    log.record(found := decision("r1"))
    log.ended("r1", "worker_lost", "it was lost")
    log.ended("unknown", "worker_lost", "")
    told = decision_to_wire(found)
    assert (told.arrival.tenant, told.arrival.priority) == ("acme", "batch")
    assert (told.arrival.end, told.arrival.error) == ("worker_lost", "it was lost")
    foretold, [chosen] = told.foretold, [each for each in told.candidates if each.chosen]
    assert foretold.queue_ms == pytest.approx(240.0 + chosen.queue_ms)
    assert foretold.ttft_ms == pytest.approx(240.0 + chosen.total_ms - chosen.interference_ms)
    assert log.unrouted("r1") == []


def test_so_many_requests_are_remembered_and_no_more() -> None:
    log = DecisionLog(max_decisions=2)
    for number in range(3):
        log.came(RequestArrival(f"r{number}"))
    assert log.arrival_of("r0") is None and log.arrival_of("r2") is not None


def test_of_a_large_fleets_decision_the_cheapest_candidates_are_kept() -> None:
    log = DecisionLog()
    log.record(decision("r1", fleet_size=50))
    kept = log.find("r1")
    assert kept is not None
    assert len(kept.route.candidates) == MAX_CANDIDATES
    assert kept.route.chosen in kept.route.candidates
    assert len(kept.view.decode) + len(kept.view.prefill) <= 2 * MAX_CANDIDATES
    assert kept.expected_tokens == 0
