"""The engine's main loop, on the main thread of its process.

    receive -> extension -> apply -> step -> enrich -> send

It never waits on a network. It blocks only when a step cannot achieve anything, and then only for
the next command: not at all while there is work, briefly while the extension is busy.
"""

from __future__ import annotations

import time

import structlog

from cluster.deadline import Clock
from cluster.errors import InternalError, RankLost, status_of
from cluster.generation import Usage
from engine.contract.commands import Cancel, Stop
from engine.contract.messages import Beat, Frame, RequestEnded, Stepped
from engine.process.channel import Channel, Received, UnreadableCommand
from engine.process.extension import TurnPart
from engine.runner.model_runner import ALONE
from engine.runner.other_ranks import GroupTurn
from engine.step.engine import Engine
from engine.step.step_health import EngineBroken

_LOG = structlog.get_logger()

_BUSY_POLL_MS = 1.0
"""Reads are in flight, or grammars are compiled: their completion is noticed by polling."""
_WAITING_MS = 20.0
"""Requests are alive but wait for somebody: deadlines still have to be seen."""
_IDLE_MS = 200.0
_CHECK_INTERVAL_S = 1.0
BEAT_INTERVAL_S = 0.5


class EngineLoop:
    """Channel, engine and extension, tied together. `run` returns after Stop.

    What it raises ends the process: EngineBroken, RankLost, an extension that raised, a command
    that nobody can be told of.
    """

    def __init__(
        self,
        engine: Engine,
        extension: TurnPart,
        channel: Channel,
        *,
        group: GroupTurn = ALONE,
        clock: Clock = time.monotonic,
    ) -> None:
        """`group`: see Replica."""
        self._engine, self._extension = engine, extension
        self._channel, self._group = channel, group
        self._clock = clock
        self._is_stopping = False
        self._was_idle = True
        self._checked_s = clock()
        self._num_turns = 0
        self._beat_s = clock()

    def run(self) -> None:
        """Turns until Stop."""
        while not self._is_stopping:
            self.turn()

    def turn(self) -> None:
        """Receive, step, send: once."""
        for command in self._channel.receive(self._patience_ms()):
            self._dispatch(command)
        self._group.check()
        for command in self._extension.poll():
            self._engine.apply(command)
        frame = self._step()
        self._extension.enrich(frame)
        self._group.enrich(frame)
        if not frame.is_empty:
            self._channel.send(Stepped(frame))
        if self._engine.is_idle:
            self._group.idle_turn()
        self._check_when_idle()
        self._beat()

    def _beat(self) -> None:
        """On this thread and no other, which would beat on when this one hangs."""
        self._num_turns += 1
        now_s = self._clock()
        if now_s - self._beat_s >= BEAT_INTERVAL_S:
            self._beat_s = now_s
            self._channel.send(Beat(self._num_turns))

    def _patience_ms(self) -> float:
        if self._engine.has_work:
            return 0.0
        if self._extension.busy or self._engine.has_work_soon:
            return _BUSY_POLL_MS
        return _IDLE_MS if self._engine.is_idle else _WAITING_MS

    def _dispatch(self, command: Received) -> None:
        if isinstance(command, Stop):
            self._is_stopping = True
        elif isinstance(command, UnreadableCommand):
            self._refuse(command)
        elif not self._extension.handle(command):
            self._engine.apply(command)

    def _refuse(self, command: UnreadableCommand) -> None:
        """The request's one and last word; what the engine says of it afterwards, nobody hears."""
        error = InternalError("the engine could not read a command for this request")
        ended = RequestEnded(
            request_id=command.request_id,
            usage=Usage(0, 0, 0),
            error_code=status_of(error).code,
            error_message=error.message,
        )
        self._channel.send(Stepped(Frame(ended=[ended])))
        self._dispatch(Cancel(command.request_id))

    def _step(self) -> Frame:
        try:
            return self._engine.step()
        except (EngineBroken, RankLost):
            raise
        except Exception as error:
            _LOG.exception("a step failed outside any request; all requests end")
            self._engine.fail_all(error)
            return self._engine.step()

    def _check_when_idle(self) -> None:
        """Looks for broken invariants as the engine becomes idle, at most once a second."""
        is_idle = self._engine.is_idle
        is_due = is_idle and not self._was_idle
        self._was_idle = is_idle
        if is_due and self._clock() - self._checked_s >= _CHECK_INTERVAL_S:
            self._checked_s = self._clock()
            for violation in self._engine.check_invariants():
                _LOG.error("broken invariant of the engine; this is a bug", violation=violation)
