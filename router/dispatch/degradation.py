"""What an operator gives up, step by step, while the line is long.

    line, in seconds:  0 ... 1 ............. 2 ................ 4 ................ 8
                             shed a class    shorter answers    no local prefill   nobody waits

A step begins when the line is as long as its threshold, and ends when it has been half as long for
HOLD_S: a fleet between two steps does not go back and forth.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from cluster.deadline import Clock
from cluster.errors import ConfigError, QueueFull
from cluster.logs import get_logger
from router.dispatch.stream import RoutedRequest
from router.tenants.priority import Priority

FIRST_THRESHOLD_S = 1.0
"""Of a step that names none; of each further one twice as much."""
HOLD_S = 5.0
_log = get_logger("degradation")


class StepKind(enum.StrEnum):
    """As operators name them."""

    SHED = "shed"
    MAX_TOKENS = "max-tokens"
    LOCAL_PREFILL = "local-prefill"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class DegradationStep:
    """One of them."""

    kind: StepKind
    threshold_s: float
    """Of the line."""
    priority: Priority | None = None
    """That is shed."""
    max_tokens: int = 0

    def __str__(self) -> str:
        if self.kind is StepKind.SHED:
            return f"{self.kind}={self.priority}"
        if self.kind is StepKind.MAX_TOKENS:
            return f"{self.kind}={self.max_tokens}"
        return f"{self.kind}=off" if self.kind is StepKind.LOCAL_PREFILL else str(self.kind)


def steps_of(text: str) -> tuple[DegradationStep, ...]:
    """`shed=batch@2,max-tokens=256@5,local-prefill=off,refuse`: in this order, each from so many
    seconds of line. Raises ConfigError."""
    steps: list[DegradationStep] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        default_s = steps[-1].threshold_s * 2 if steps else FIRST_THRESHOLD_S
        step = _step_of(word, default_s)
        if steps and step.threshold_s < steps[-1].threshold_s:
            raise ConfigError(f"--degrade: {word!r} begins before the step that it follows")
        steps.append(step)
    return tuple(steps)


def _step_of(word: str, default_s: float) -> DegradationStep:
    what, has_threshold, seconds = word.partition("@")
    kind, _, value = what.partition("=")
    try:
        threshold_s = float(seconds) if has_threshold else default_s
        if kind == StepKind.SHED:
            return DegradationStep(StepKind.SHED, threshold_s, priority=Priority(value))
        if kind == StepKind.MAX_TOKENS and int(value) > 0:
            return DegradationStep(StepKind.MAX_TOKENS, threshold_s, max_tokens=int(value))
        if (kind, value) in ((StepKind.LOCAL_PREFILL, "off"), (StepKind.REFUSE, "")):
            return DegradationStep(StepKind(kind), threshold_s)
    except ValueError:
        pass
    raise ConfigError(
        f"--degrade: {word!r} is no step; there are shed=CLASS, max-tokens=N, local-prefill=off "
        "and refuse, each with @SECONDS of line if you like"
    )


class Degradation:
    """Of one router. From the event loop only."""

    def __init__(
        self,
        steps: tuple[DegradationStep, ...],
        clock: Clock,
        on_change: Callable[[str], None] = lambda steps: None,
    ) -> None:
        """`on_change` hears the steps in force, in words, when they have changed."""
        self._on_change = on_change
        self._steps = steps
        self._clock = clock
        self._num_in_force = 0
        self._long_s = clock()
        """When the line was last long enough for the last step in force."""

    @property
    def num_in_force(self) -> int:
        """Steps, from the first on."""
        return self._num_in_force

    @property
    def in_words(self) -> str:
        """Those, as an operator wrote them; empty: nothing is given up."""
        return ",".join(map(str, self._in_force()))

    def look(self, line_s: float) -> None:
        """The line is so long now."""
        if not self._steps:
            return
        before = self._num_in_force
        while self._num_in_force < len(self._steps) and line_s >= self._threshold_s(0):
            self._num_in_force += 1
            self._long_s = self._clock()
        if self._num_in_force and line_s >= self._threshold_s(-1) / 2:
            self._long_s = self._clock()
        elif self._num_in_force and self._clock() - self._long_s >= HOLD_S:
            self._num_in_force -= 1
            self._long_s = self._clock()
        if self._num_in_force != before:
            _log.warning("what is given up has changed", steps=self.in_words, line_s=line_s)
            self._on_change(self.in_words)

    def check(self, priority: Priority, line_s: float) -> None:
        """Raises QueueFull for a request that is not taken now."""
        for step in self._in_force():
            if step.kind is StepKind.REFUSE and line_s > 0:
                raise _turned_away("nobody is taken while others wait", line_s)
            if step.priority is priority:
                raise _turned_away(f"requests of class {priority} are not taken now", line_s)

    def shortened(self, request: RoutedRequest) -> RoutedRequest:
        """With an answer no longer than it may be now; one that goes on keeps its length."""
        if request.resume:
            return request
        for step in self._in_force():
            sampling = request.sampling
            limit = max(step.max_tokens, sampling.min_tokens)
            if step.kind is StepKind.MAX_TOKENS and sampling.max_tokens > limit:
                shorter = msgspec.structs.replace(sampling, max_tokens=limit)
                return msgspec.structs.replace(request, sampling=shorter)
        return request

    @property
    def allows_local_prefill(self) -> bool:
        """Whether decode workers may compute prompts where prefill workers could."""
        in_force = self._in_force()
        return not in_force or all(each.kind is not StepKind.LOCAL_PREFILL for each in in_force)

    def _in_force(self) -> tuple[DegradationStep, ...]:
        return self._steps[: self._num_in_force]

    def _threshold_s(self, offset: int) -> float:
        return self._steps[self._num_in_force + offset].threshold_s


def _turned_away(why: str, line_s: float) -> QueueFull:
    return QueueFull(f"the fleet is overloaded: {why}; come again later", retry_after_s=1 + line_s)
