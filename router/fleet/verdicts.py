"""How workers did, in the words of those who had something from them: who fails is left alone.

a request's end, a token -> its decode worker        a handoff -> its prefill worker, see Blame
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.identity import Role, WorkerKey
from cluster.logs import get_logger
from router.fleet.blame import Blame
from router.fleet.member import FleetMember
from router.telemetry.diary import Diary, Happening

_log = get_logger("fleet")


class Verdicts:
    """Of one router. `find`: None when that process is not a member. From the event loop only."""

    def __init__(
        self,
        find: Callable[[WorkerKey], FleetMember | None],
        with_role: Callable[[Role], Sequence[FleetMember]],
        diary: Diary,
    ) -> None:
        self._find = find
        self._diary = diary
        self._with_role = with_role
        self._blame = Blame()

    def handoff(self, key: WorkerKey, failed: bool, *, reader: WorkerKey) -> None:
        """How one from a prefill worker went, as its reader says."""
        item = self._find(key)
        if item is None or item.is_decode:
            return
        if not failed:
            self._blame.succeeded(key)
        elif not self._blame.failed(key, reader, num_readers=len(self._with_role(Role.DECODE))):
            return  # it may be the reader's own
        self._judge(item, failed=failed)

    def request(self, key: WorkerKey, *, failed: bool) -> None:
        """A worker that answers has made a token of a request, or pooled it, or failed it by its
        own fault."""
        item = self._find(key)
        if item is not None and item.answers:
            self._judge(item, failed=failed)

    def good_end(self, key: WorkerKey) -> None:
        """A request ended well for which a decode worker had no token to make. What was sent
        before a rest says nothing of what comes after it."""
        item = self._find(key)
        if item is not None and item.answers and not item.cooldown.is_resting:
            item.cooldown.ended_well()
            item.slow_start.succeeded()

    def forget(self, key: WorkerKey) -> None:
        """The process is gone."""
        self._blame.forget(key)

    def _judge(self, item: FleetMember, *, failed: bool) -> None:
        if not failed:
            if not item.cooldown.is_trusted:
                self._diary.note(Happening.WELL, item.key.worker_id, "its work succeeds again")
            item.cooldown.succeeded()
            item.slow_start.succeeded()
            return
        item.slow_start.failed()
        if (rest_s := item.cooldown.failed()) is not None:
            role, worker_id = item.member.role.value, item.key.worker_id
            _log.warning(
                "a worker failed at its work; for `rest_s` seconds others are preferred",
                worker_id=worker_id,
                role=role,
                rest_s=rest_s,
            )
            work = "requests" if item.is_decode else "handoffs"
            cause = f"its {work} fail: others are preferred for {rest_s:g} s"
            self._diary.note(Happening.RESTED, worker_id, cause)
