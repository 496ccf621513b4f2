"""Decode steps that are launched before the tokens of the one in flight are read: what a failure of
either ends, and in which order they take their turns.
"""

from __future__ import annotations

import structlog

from engine.step.batch.step_work import StepWork
from engine.step.computation import Computation
from engine.step.requests.table import RequestTable
from engine.step.run_ahead import DecodeStep, LaunchedStep, RunAhead
from engine.step.step_planner import StepPlanner

_LOG = structlog.get_logger()


class Launches:
    """Of one engine whose runner can launch."""

    def __init__(
        self, ahead: RunAhead, planner: StepPlanner, computation: Computation, table: RequestTable
    ) -> None:
        self._ahead = ahead
        self._planner = planner
        self._computation = computation
        self._table = table

    @property
    def in_flight(self) -> LaunchedStep | None:
        """The step whose tokens are not read yet."""
        return self._ahead.in_flight

    def launch(self, work: StepWork) -> bool:
        """Launches it, where it is nothing but decodes that may run ahead. False: it is not, and
        nothing was done."""
        step = self._ahead.step_of(work.sequences) if work.is_plain_decode else None
        if step is not None:
            self._launch(step)
        return step is not None

    def turn(self, launched: LaunchedStep) -> None:
        """Launches the step after the one in flight, if it can be; then reads the one in flight."""
        step = self._ahead.next_step()
        if step is not None:
            self._ahead.make_room(step)
            self._planner.admit(step.admissions)
            self._launch(step)
        self._take(launched)

    def _launch(self, step: DecodeStep) -> None:
        """An exception ends the requests of this step only."""
        try:
            self._ahead.launch(step)
        except Exception as error:
            _LOG.exception(
                "a decode step could not be launched; its requests end",
                num_sequences=len(step.sequences),
            )
            self._computation.fail(self._table.of(step.sequences), error)

    def _take(self, launched: LaunchedStep) -> None:
        """An exception ends the requests of this step only."""
        waiting = self._table.of(launched.alive)
        try:
            num_given = self._ahead.land()
        except Exception as error:
            _LOG.exception(
                "a launched decode step failed; its requests end",
                num_sequences=len(launched.row_of),
            )
            self._computation.fail(self._table.of(launched.alive), error)
        else:
            self._computation.note_tokens(num_given, waiting)
        self._table.sweep()
