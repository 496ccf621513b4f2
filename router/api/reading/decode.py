"""From the bytes of a body to a typed request, or an error that names the field."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from cluster.errors import InvalidRequest
from router.api.reading.unknown_fields import without_unknown

Schema = TypeVar("Schema", bound=msgspec.Struct)

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*?)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?(.*?)`)?$", re.DOTALL)
_WRONG = re.compile(r"(.*) - at `(?:key` in `)?\$\.?(.*?)`$", re.DOTALL)
MAX_NAME_CHARS = 100
COLLECTOR_PAUSE_BYTES = 256 * 1024
"""8 MB of `[1],[1],...` take 1.6 s to decode with the garbage collector running, because it looks
at the growing list again and again, and 0.2 s without."""


class UnknownField(InvalidRequest):
    """The body has a field that the schema does not."""


def decode_known(
    body: bytes, decoder: msgspec.json.Decoder[Schema], *, ignores_unknown: bool
) -> tuple[Schema, tuple[str, ...]]:
    """As `decode`, with the names of the fields that were left out, where that is allowed."""
    try:
        return decode(body, decoder), ()
    except UnknownField:
        if not ignores_unknown:
            raise
        known, names = without_unknown(body, decoder.type)
        return decode(known, decoder), names


def decode(body: bytes, decoder: msgspec.json.Decoder[Schema]) -> Schema:
    """Raises InvalidRequest; a duplicate key counts with its last value, as in most parsers."""
    try:
        if len(body) < COLLECTOR_PAUSE_BYTES:
            return decoder.decode(body)
        with _collector_paused():
            return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}") from None
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not valid UTF-8") from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply") from None


def _invalid(message: str) -> InvalidRequest:
    if found := _UNKNOWN.match(message):
        name = _path(found)
        return UnknownField(f"Unrecognized request argument supplied: {name}", param=name)
    if found := _MISSING.match(message):
        name = _path(found)
        return InvalidRequest(f"Missing required parameter: {name}", param=name)
    if found := _WRONG.match(message):
        where = str(found[2])[:MAX_NAME_CHARS]
        return InvalidRequest(f"Invalid value for {where}: {found[1]}", param=where or None)
    return InvalidRequest(f"Invalid body: {message}")


def _path(found: re.Match[str]) -> str:
    """Where the field is, such as `messages[0].content`."""
    name = found[1][:MAX_NAME_CHARS]
    return f"{found[2]}.{name}" if found[2] else name


@contextmanager
def _collector_paused() -> Iterator[None]:
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
