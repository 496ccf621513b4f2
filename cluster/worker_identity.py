"""Whom one end of a session means, and who answers at the other.

    router -> whom it means        worker -> who it is        equal: the session is open
                                                              else: it ends, on both sides

An address alone says neither: it may have been given to another worker within a lease, and a fixed
port may serve another model after a fast restart. Its tokens would be wrong, and look right.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster.errors import WrongWorker
from cluster.identity import WorkerKey
from cluster.pairing import Pairing, check_same

_SHOWN_CHARS = 64


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """One process of one worker, and what its tokens depend on."""

    key: WorkerKey
    pairing: Pairing

    def check(self, meant: WorkerIdentity) -> None:
        """This one answered. Raises WrongWorker or PairingMismatch unless it is the one meant."""
        if self.key != meant.key:
            raise WrongWorker(
                f"{_words(self.key)} answers where {_words(meant.key)} was meant: its address "
                "has been given away, or it was restarted"
            )
        check_same(meant.pairing, self.pairing, peer=self.key.worker_id)


def _words(key: WorkerKey) -> str:
    return f"{key.worker_id[:_SHOWN_CHARS]!r} (process {key.incarnation[:_SHOWN_CHARS]!r})"
