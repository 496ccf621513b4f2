"""Our own lateness, as everybody counts it."""

from __future__ import annotations

import ast

from cluster.process.own_lateness import LATE_S, LONGEST_LOOK_S, LateTurn, SeenTime
from tests.manual_clock import ManualClock
from tests.packaging.test_import_cycles import FILES


def test_a_gap_between_two_looks_counts_as_a_short_one() -> None:
    clock = ManualClock()
    time = SeenTime(clock)
    clock.advance(0.25)
    assert time.look() == 0.25
    clock.advance(1e6)  # we were stopped
    assert time.look() == 0.25 + LONGEST_LOOK_S
    clock.advance(0.5)
    time.renew()
    clock.advance(0.125)
    assert time.look() == 0.125


def test_a_late_turn_spares_everybody_once_and_a_loop_that_is_always_late_judges_too() -> None:
    clock = ManualClock()
    turn = LateTurn(clock)

    def spares(late_s: float) -> bool:
        turn.due_in(0.5)
        clock.advance(0.5 + late_s)
        assert abs(turn.late_s - late_s) < 1e-9
        return turn.spares()

    late = 10 * LATE_S
    assert [spares(late_s) for late_s in (0.0, late, late, late, 0.0, late)] == [
        *(False, True, False, True, False, True)
    ]
    turn.needs_none()
    assert spares(late)


def test_lateness_is_stated_in_one_place() -> None:
    stated = [
        module
        for module, path in FILES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("LATE_S", "_LATE_S")
    ]
    assert stated == ["cluster.process.own_lateness"]
