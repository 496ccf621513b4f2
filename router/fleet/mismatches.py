"""Why some prefill and decode workers are both members and never meet; said once for each pair."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.errors import PairingMismatch
from cluster.identity import Role
from cluster.logs import get_logger
from cluster.membership.member import Member
from cluster.pairing import check_pairing

_log = get_logger("fleet")


class Mismatches:
    """By (decode worker's id, prefill worker's id)."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, str], str] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        """In words, with both values."""
        return tuple(self._texts.values())

    def note(self, newcomer: Member, others: Iterable[Member]) -> None:
        """A worker joined those."""
        for other in others:
            if other.role is not newcomer.role:
                is_decode = newcomer.role is Role.DECODE
                self._compare(*((newcomer, other) if is_decode else (other, newcomer)))

    def forget(self, worker_id: str) -> None:
        """A worker has gone."""
        self._texts = {pair: text for pair, text in self._texts.items() if worker_id not in pair}

    def _compare(self, decode: Member, prefill: Member) -> None:
        try:
            check_pairing(decode.pairing, prefill.pairing, peer=prefill.worker_id)
        except PairingMismatch as mismatch:
            text = f"{decode.worker_id}: {mismatch.message}"
            self._texts[(decode.worker_id, prefill.worker_id)] = text
            _log.warning("two workers do not fit together and get no common requests", reason=text)
