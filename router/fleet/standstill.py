"""For how long a decode worker has made nothing of what it could have done.

    given, prompt and all ------------------------> its turn --> left, answered or not
    given, prefill workers named --> elsewhere --first token--^

Time counts while it is the worker's turn with any request, and from zero again with every token
that it makes itself, every part of a prompt that it computes, and every good end. A request that
leaves unanswered takes nothing back: who gives up after a second has seen the worker stand for that
second. What waits elsewhere is the worker's turn, too, unless it says that it receives: it has yet
to ask for the prompt's blocks.
"""

from __future__ import annotations

from cluster.deadline import Clock
from cluster.generation import EngineLoad


class GivenRequest:
    """One request at the worker. Both methods are idempotent."""

    __slots__ = ("_is_elsewhere", "_is_over", "_standstill")

    def __init__(self, standstill: Standstill, *, is_elsewhere: bool) -> None:
        self._standstill = standstill
        self._is_elsewhere = is_elsewhere
        self._is_over = False

    def came_back(self) -> None:
        """The prompt is computed: the rest is the worker's."""
        if self._is_elsewhere and not self._is_over:
            self._is_elsewhere = False
            self._standstill.changed(num_own=1, num_elsewhere=-1)

    def left(self) -> None:
        """The worker has nothing more to do for it."""
        if self._is_over:
            return
        self._is_over = True
        if self._is_elsewhere:
            self._standstill.changed(num_elsewhere=-1)
        else:
            self._standstill.changed(num_own=-1)


class Standstill:
    """Of one process. `clock` gives monotonic seconds, as do the moments that `made` is told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._num_own = 0
        self._num_elsewhere = 0
        self._load = EngineLoad()
        """The worker's last word."""
        self._has_lost_one = False
        """A request has left since."""
        self._since_s: float | None = None
        """While time counts: from when, as if it had never paused."""
        self._counted_s = 0.0
        """While it does not."""
        self.made_s: float | None = None
        """When it last made something; None: never."""

    @property
    def has_turn(self) -> bool:
        """True while there is something that it could do."""
        receives = self._load.num_leases > 0
        return self._num_own > 0 or (self._num_elsewhere > 0 and not receives)

    def has_lasted(self, limit_s: float) -> bool:
        """True when it has had so much time, and made nothing for anybody."""
        if self._since_s is None:
            return self._counted_s >= limit_s
        return self._clock() >= self._since_s + limit_s

    @property
    def lasted_s(self) -> float:
        """How much time that is."""
        return self._counted_s if self._since_s is None else self._clock() - self._since_s

    def given(self, *, is_elsewhere: bool) -> GivenRequest:
        """A request is sent there; `is_elsewhere`: others were named who compute its prompt."""
        given = GivenRequest(self, is_elsewhere=is_elsewhere)
        self.changed(num_own=int(not is_elsewhere), num_elsewhere=int(is_elsewhere))
        return given

    def changed(self, *, num_own: int = 0, num_elsewhere: int = 0) -> None:
        """So many more are its turn, or elsewhere. By `GivenRequest` only."""
        self._num_own += num_own
        self._num_elsewhere += num_elsewhere
        self._has_lost_one |= num_own + num_elsewhere < 0
        self._count()

    def heard(self, load: EngineLoad) -> None:
        """The worker's own word: whether it waits for blocks of prompts that others compute, and
        what is left of those that it computes itself."""
        if self._has_computed(load):
            self.made(self._clock())
        self._load, self._has_lost_one = load, False
        self._count()

    def made(self, now_s: float) -> None:
        """A token of its own, or tokens of a prompt. Called with every one."""
        self.made_s = now_s
        self._counted_s = 0.0
        if self._since_s is not None:
            self._since_s = now_s

    def worked(self) -> None:
        """It says so itself, in other words than its load."""
        self.made(self._clock())

    def ended_well(self) -> None:
        """A request is complete, whoever made its tokens: the engine has closed it."""
        self.made(self._clock())

    def _has_computed(self, load: EngineLoad) -> bool:
        """Less is left of as many prompts: what a request takes along that leaves, be it another
        router's, is nothing made. Or steps have decoded: of a beam search nothing comes before its
        end."""
        before = self._load
        if load.decoded_tokens > before.decoded_tokens > 0:
            return True
        return (
            load.waiting_prefill_tokens < before.waiting_prefill_tokens
            and load.waiting_prompts >= before.waiting_prompts
            and not self._has_lost_one
        )

    def _count(self) -> None:
        """Starts or stops the time, as things are now."""
        if self.has_turn and self._since_s is None:
            self._since_s = self._clock() - self._counted_s
        elif not self.has_turn and self._since_s is not None:
            self._counted_s = self._clock() - self._since_s
            self._since_s = None
