"""One vLLM server, looked at for as long as the router runs.

    unknown --answers, and is what it should be--> joined --each look: a beat--> joined
       ^                                              '--another process answers--> replaced
       '-- its lease has run out: nobody answered <---'

What it says of its load is read here, off every request's path. A look that fails is no beat: the
store removes whoever is not heard for a lease, and a decode server gets nothing new until it
answers again. It may be busy, so requests that it answers go on: what it has sent of them since the
last look is a beat, too, and it has a while in which it takes connections and says nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from cluster.deadline import Sleep
from cluster.errors import PairingMismatch, SplitserveError, WorkerSilent
from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey, new_incarnation
from cluster.logs import get_logger
from cluster.membership.store import MembershipStore
from router.vllm.event_source import told_events
from router.vllm.introduction import FrontedModel, introduced
from router.vllm.server import NUMBERS_TIMEOUT_S, VllmServer
from router.vllm.server_numbers import ServerNumbers
from router.vllm.wire import check

LOST_AFTER_LOOKS = 2
"""That fail: a single one is a busy moment."""
LOST_AFTER_SILENT_LOOKS = 4
"""Of a server that takes connections: 12 to 20 s, in which a busy machine has given it its turn."""
_log = get_logger("vllm")


class ServerWatch:
    """`run` in a background task. `on_health` hears of the process that has joined, with each look;
    `on_late_reads` how many more reads came after their lease."""

    def __init__(
        self,
        server: VllmServer,
        store: MembershipStore,
        model: FrontedModel,
        *,
        interval_s: float,
        sleep: Sleep,
        on_health: Callable[[WorkerKey, bool], None],
        on_late_reads: Callable[[int], None],
    ) -> None:
        self._server = server
        self._store = store
        self._model = model
        self._interval_s = interval_s
        self._sleep = sleep
        self._on_health = on_health
        self._on_late_reads = on_late_reads
        self._unnamed = new_incarnation()
        """Of a process that does not say when it began."""
        self._load = EngineLoad()
        """As of the last look that was answered."""
        self._num_words = 0
        """Of its answers, at the last look."""
        self._fault: str | None = None
        """The last, said once."""
        self._num_faults = 0
        """Looks that failed, one after the other."""
        self._is_believed = False
        """The last look was answered, or only waited for."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.look()
            await self._sleep(self._interval_s)

    async def look(self) -> None:
        """Once: a beat, or a join, or why there is neither."""
        if self._is_believed:
            await self._beat_again()  # so that a look which waits is no silence of ours
        try:
            await self._look()
        except SplitserveError as error:
            self._note_fault(error)
            self._is_believed = isinstance(error, WorkerSilent) and self._may_be_busy
            if self._has_sent() or self._is_believed:
                await self._beat_again()
        else:
            self._fault, self._num_faults, self._is_believed = None, 0, True
            self._server.note_answer()

    @property
    def _may_be_busy(self) -> bool:
        """While it is silent: what it has would be lost with its membership. Of a prefill server
        nothing is, and a new request that found it silent would wait for it."""
        server = self._server
        return server.address.fleet_role is Role.DECODE and not server.lost.is_set()

    async def _look(self) -> None:
        server = self._server
        check(await server.wire.get("/health", timeout_s=NUMBERS_TIMEOUT_S), server.name)
        if self._is_believed:
            await self._beat_again()  # its numbers may take as long again
        numbers = await server.look()
        incarnation = numbers.started or self._unnamed
        known = server.member
        if known is None or known.incarnation != incarnation or not await self._beat(numbers):
            await self._join(numbers, incarnation)
            await self._beat(numbers)
        if server.member is not None:
            self._on_health(server.member.key, not server.is_unlisted)

    async def _beat(self, numbers: ServerNumbers) -> bool:
        """False when the process is not a member."""
        assert self._server.member is not None
        self._note_late_reads(numbers)
        self._load, self._num_words = self._server.note(numbers), self._server.num_words
        key, is_leaving = self._server.member.key, self._server.is_unlisted
        return await self._store.beat(key, self._load, draining=is_leaving)

    def _has_sent(self) -> bool:
        """Something since the last look."""
        before, self._num_words = self._num_words, self._server.num_words
        return self._num_words > before

    async def _beat_again(self) -> None:
        """With the load of the last look that was answered."""
        if self._server.member is not None:
            key, is_leaving = self._server.member.key, self._server.is_unlisted
            await self._store.beat(key, self._load, draining=is_leaving)

    async def _join(self, numbers: ServerNumbers, incarnation: str) -> None:
        member = await introduced(self._server, numbers, self._model, incarnation)
        for state in self._store.members():
            if state.member.pairing.is_ours:
                raise PairingMismatch(
                    f"{member.worker_id} cannot join: {state.member.worker_id} is no vLLM server, "
                    "and tokens of one router come from one engine; give each a router of its own"
                )
        known = self._server.member
        if known is not None and known.incarnation != incarnation:
            self._server.note_lost()  # to whoever waits for the process before this one
        self._server.note_answer()
        self._server.member = member
        self._server.events = await told_events(self._server, member.pairing)
        await self._store.join(member)

    def _note_late_reads(self, numbers: ServerNumbers) -> None:
        before, now = self._server.numbers.late_reads, numbers.late_reads
        if before is None or now is None or now <= before:
            return
        self._on_late_reads(now - before)
        _log.error(
            "blocks of a vLLM prefill server were read after their lease; answers made of them by "
            "anybody but this router may be wrong",
            worker_id=self._server.name,
            num_reads=now - before,
        )

    def _note_fault(self, error: SplitserveError) -> None:
        if self._server.member is not None:
            self._on_health(self._server.member.key, False)
        self._num_faults += 1
        is_silent = isinstance(error, WorkerSilent)
        if self._num_faults >= (LOST_AFTER_SILENT_LOOKS if is_silent else LOST_AFTER_LOOKS):
            self._server.note_lost()
        if not is_silent or self._server.lost.is_set():
            self._unnamed = new_incarnation()  # whoever answers next may be another process
        if error.message != self._fault:
            self._fault = error.message
            _log.warning(
                "a vLLM server takes no work; it is asked again",
                worker_id=self._server.name,
                reason=error.message,
            )
