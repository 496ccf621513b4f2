"""The model as a rank's own host has it: paths mean nothing elsewhere, and a name may mean another
revision there.

The rank looks for the source that its conductor was given, in its own cache, fetches it where that
is allowed, and takes it if the weights are the same ones.
"""

from __future__ import annotations

import socket
import time

import msgspec

from cluster.deadline import Clock
from cluster.errors import ChecksumMismatch, SplitserveError
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from engine.contract.spec import EngineSpec
from engine.model.load_phases import PhaseProgress

_TELL_EVERY_S = 1.0
"""Each report is a message to the conductor, which ends a group that hears none for long: what is
told says that work goes on, whatever the numbers are."""


def spec_with_own_card(spec: EngineSpec, progress: PhaseProgress) -> EngineSpec:
    """Blocking: may download, or read the weights once for their digest. Raises ChecksumMismatch
    for other weights than the conductor's, and what ModelStore does, with the host's name."""
    host, card = socket.gethostname(), spec.card
    try:
        own = ModelStore().resolve(card.source, ToldProgress(progress))
    except SplitserveError as error:
        message = f"on {host}: {error.message}"
        raise type(error)(message, param=error.param) from error
    if own.weights_digest != card.weights_digest:
        raise ChecksumMismatch(_other_weights(host, own, card), param="model")
    return msgspec.structs.replace(spec, card=own)


class ToldProgress:
    """ByteProgress of a store as a rank's phases: a new phase at once, and one word a second."""

    def __init__(self, progress: PhaseProgress, *, clock: Clock = time.monotonic) -> None:
        self._progress, self._clock = progress, clock
        self._phase = ""
        self._told_s = 0.0

    def __call__(self, phase: str, done_bytes: int, total_bytes: int | None) -> None:
        """See ByteProgress."""
        now_s = self._clock()
        if phase != self._phase or now_s - self._told_s >= _TELL_EVERY_S:
            self._phase, self._told_s = phase, now_s
            self._progress(phase, done_bytes / total_bytes if total_bytes else 0.0)


def _other_weights(host: str, own: ModelCard, card: ModelCard) -> str:
    return (
        f"on {host} {card.source} has other weights ({own.metadata_path}, digest "
        f"{own.weights_digest[:12]}) than at the conductor ({card.weights_digest[:12]}); fetch the "
        f"same revision there with `splitserve models pull {card.source}`, or copy the folder"
    )
