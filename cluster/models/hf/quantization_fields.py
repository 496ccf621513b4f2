"""Values that several quantization configs state alike."""

from __future__ import annotations

from cluster.errors import BadCheckpoint, UnsupportedModel
from cluster.models.fields import Fields

_MAX_GROUP = 1 << 20


def require(fields: Fields, key: str, value: object, *supported: object) -> None:
    """Raises UnsupportedModel for a value that is not among those that are run."""
    if value not in supported:
        raise UnsupportedModel(
            f"{fields.where}: {key} {value!r} is not run; supported: "
            f"{', '.join(repr(choice) for choice in supported)}"
        )


def group_of(fields: Fields, key: str) -> int | None:
    """Inputs that share a scale; None, which is stored as -1, for all of them."""
    size = fields.integer(key)
    if size != -1 and not 1 <= size <= _MAX_GROUP:
        raise BadCheckpoint(f"{fields.where}: {key} is {size}; allowed: -1, 1 to {_MAX_GROUP}")
    return None if size == -1 else size


def block_of(fields: Fields, key: str) -> tuple[int, int] | None:
    """Outputs and inputs that share a scale; None where there are no blocks."""
    value = fields.raw(key)
    if value is None:
        return None
    sound = isinstance(value, list) and len(value) == 2
    if not sound or any(type(size) is not int or not 1 <= size <= _MAX_GROUP for size in value):
        raise BadCheckpoint(f"{fields.where}: {key} is {value!r}; it must be two positive sizes")
    return value[0], value[1]
