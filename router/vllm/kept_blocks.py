"""What a vLLM prefill server lets a decode server read, and for how long that can be believed.

    answered --within a third of the lease--> taken, once --first token--> good, doubtful, late
        '--later--> dropped: the decode server computes the prompt itself

The blocks are kept for a lease; the reader's heartbeats renew it, from the moment that the reader
knows the request. vLLM reads without asking whether it has passed: blocks that are another
request's by then give a wrong text and a status of 200. So nothing is relayed before it is sure
that no read can have been late.

The counter of late reads moves when the prefill server next works, which may be long after: that it
stands still acquits nobody whose lease has passed. Within the lease it is asked all the same: an
operator may have given the server a shorter one than the router was told.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from cluster.deadline import Clock
from cluster.errors import TransferFailed

TAKE_WITHIN = 1 / 3
"""Of the lease: the rest is for the decode server's own line at its door."""
_NAMED = ("remote_engine_id", "remote_request_id", "remote_host")
"""One that names blocks and no engine ends vLLM's decode engine."""


class LateRead(TransferFailed):
    """Blocks may have been read after their lease; nothing of the answer was relayed."""


class Belief(enum.Enum):
    """Of a first token that came from blocks of a prefill server."""

    GOOD = "good"
    DOUBTFUL = "doubtful"
    """Good if the server's counter of late reads has not moved."""
    TOO_LATE = "too late"


class PrefillAnswer(msgspec.Struct):
    """Of a prefill server's whole answer, what counts."""

    kv_transfer_params: dict[str, Any] | None = None


class KeptBlocks:
    """One prompt's blocks at one prefill server. Taken once at most."""

    def __init__(
        self,
        parameters: dict[str, Any],
        *,
        answered_s: float,
        lease_s: float,
        late_reads: int | None,
        clock: Clock,
        started: str = "",
    ) -> None:
        """`answered_s`: when the answer came, at the earliest; `late_reads`: the server's counter
        before it was asked; `started`: when its process began, as it says."""
        self.started = started
        self._parameters: dict[str, Any] | None = parameters
        self._lease_s = lease_s
        self._late_reads = late_reads
        self._clock = clock
        self._answered_s = answered_s
        self._frozen_s: float | None = None
        self.cached_tokens = _count(parameters.get("remote_prefill_cached_tokens"))
        """Of the prompt, that the prefill server did not compute."""

    def take(self) -> dict[str, Any] | None:
        """For the decode server, unchanged; None: it is too late, or they were taken before."""
        parameters, self._parameters = self._parameters, None
        return parameters if self._age_s <= self._lease_s * TAKE_WITHIN else None

    def freeze(self) -> None:
        """Their reader has answered, or left: no later moment counts. The first one stays."""
        if self._frozen_s is None:
            self._frozen_s = self._clock()

    @property
    def belief(self) -> Belief:
        """Of a first token that comes now, or came when it was frozen."""
        if self._age_s > self._lease_s:
            return Belief.TOO_LATE
        return Belief.GOOD if self._age_s <= self._lease_s * TAKE_WITHIN else Belief.DOUBTFUL

    @property
    def doubtful_s(self) -> float:
        """From when on the belief is no longer good, on its clock; sooner where it was frozen."""
        return self._answered_s + self._lease_s * TAKE_WITHIN

    def was_late(self, late_reads: int | None) -> bool:
        """The counter by now says so, or says nothing."""
        if late_reads is None or self._late_reads is None:
            return True
        return late_reads != self._late_reads

    @property
    def _age_s(self) -> float:
        until_s = self._clock() if self._frozen_s is None else self._frozen_s
        return until_s - self._answered_s


def parameters_in(body: bytes) -> dict[str, Any] | None:
    """Of a prefill server's answer; None where they lack what a decode server cannot do without."""
    try:
        told = msgspec.json.decode(body, type=PrefillAnswer).kv_transfer_params
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if told is None or told.get("do_remote_prefill") is not True:
        return None
    if not all(isinstance(told.get(name), str) and told[name] for name in _NAMED):
        return None
    if not _count(told.get("remote_port")) or not isinstance(told.get("remote_block_ids"), list):
        return None
    return told


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
