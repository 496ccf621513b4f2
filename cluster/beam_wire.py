"""A beam search on the wire and back."""

from __future__ import annotations

from cluster.beam_search import BeamSearch, EarlyStopping
from cluster.errors import InvalidRequest
from protos import generation_pb2

_TO_WIRE = {
    EarlyStopping.AT_ONCE: generation_pb2.EARLY_STOPPING_AT_ONCE,
    EarlyStopping.NO_BETTER_NOW: generation_pb2.EARLY_STOPPING_NO_BETTER_NOW,
    EarlyStopping.NEVER_BETTER: generation_pb2.EARLY_STOPPING_NEVER_BETTER,
}
_FROM_WIRE = {wire: stopping for stopping, wire in _TO_WIRE.items()}
_FROM_WIRE[generation_pb2.EARLY_STOPPING_UNSPECIFIED] = EarlyStopping.NO_BETTER_NOW


def beams_to_wire(beams: BeamSearch) -> generation_pb2.BeamSearch:
    """Every field is set."""
    return generation_pb2.BeamSearch(
        width=beams.width,
        length_penalty=beams.length_penalty,
        early_stopping=_TO_WIRE[beams.early_stopping],
    )


def beams_from_wire(message: generation_pb2.BeamSearch) -> BeamSearch:
    """Absent fields take their defaults. Raises InvalidRequest for a stopping that is none; ranges
    are not checked."""
    stopping = _FROM_WIRE.get(message.early_stopping)
    if stopping is None:
        known = ", ".join(map(str, range(len(_TO_WIRE) + 1)))
        raise InvalidRequest(
            f"early_stopping is {message.early_stopping}; known: {known}",
            param="beams.early_stopping",
        )
    has_penalty = message.HasField("length_penalty")
    return BeamSearch(
        width=message.width,
        length_penalty=message.length_penalty if has_penalty else 1.0,
        early_stopping=stopping,
    )
