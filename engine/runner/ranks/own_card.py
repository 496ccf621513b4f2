"""The model as a rank's own host has it: paths mean nothing elsewhere, and a name may mean another
revision there.

The rank looks for the source that its conductor was given, in its own cache, fetches it where that
is allowed, and takes it if the weights are the same ones.
"""

from __future__ import annotations

import socket

import msgspec

from cluster.errors import ChecksumMismatch, SplitserveError
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from engine.contract.spec import EngineSpec
from engine.model.load_phases import PhaseProgress

_TOLD_STEP = 0.01
"""Of a phase: each report is a message to the conductor."""


def spec_with_own_card(spec: EngineSpec, progress: PhaseProgress) -> EngineSpec:
    """Blocking: may download, or read the weights once for their digest. Raises ChecksumMismatch
    for other weights than the conductor's, and what ModelStore does, with the host's name."""
    host, card = socket.gethostname(), spec.card
    try:
        own = ModelStore().resolve(card.source, _Told(progress))
    except SplitserveError as error:
        message = f"on {host}: {error.message}"
        raise type(error)(message, param=error.param) from error
    if own.weights_digest != card.weights_digest:
        raise ChecksumMismatch(_other_weights(host, own, card), param="model")
    return msgspec.structs.replace(spec, card=own)


class _Told:
    """ByteProgress of a store as a rank's phases."""

    def __init__(self, progress: PhaseProgress) -> None:
        self._progress = progress
        self._last: tuple[str, float] = ("", 0.0)

    def __call__(self, phase: str, done_bytes: int, total_bytes: int | None) -> None:
        fraction = done_bytes / total_bytes if total_bytes else 0.0
        told, at = self._last
        if phase != told or fraction - at >= _TOLD_STEP:
            self._last = (phase, fraction)
            self._progress(phase, fraction)


def _other_weights(host: str, own: ModelCard, card: ModelCard) -> str:
    return (
        f"on {host} {card.source} has other weights ({own.metadata_path}, digest "
        f"{own.weights_digest[:12]}) than at the conductor ({card.weights_digest[:12]}); fetch the "
        f"same revision there with `splitserve models pull {card.source}`, or copy the folder"
    )
