"""What a router says about fields that it leaves out: to the client each time, to the log once."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.logs import get_logger

IGNORED_HEADER = b"x-splitserve-ignored-fields"
MAX_HEADER_CHARS = 512
MAX_LOGGED_NAMES = 256
"""Clients choose the names: after so many the log hears of no more."""
_log = get_logger("router.api")


class IgnoredFields:
    """One per router; `names` are plain and short (`router.api.reading.unknown_fields`)."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def tell(self, names: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """Headers of the answer; none where nothing was left out."""
        if not names:
            return []
        self._log(names)
        told = ", ".join(names)
        if len(told) > MAX_HEADER_CHARS:
            told = told[: told.rindex(", ", 0, MAX_HEADER_CHARS - 5)] + ", ..."
        return [(IGNORED_HEADER, told.encode())]

    def _log(self, names: Sequence[str]) -> None:
        room = MAX_LOGGED_NAMES - len(self._logged)
        new = [name for name in names if name not in self._logged][:room]
        if not new:
            return
        self._logged.update(new)
        _log.warning("fields of a request are unknown and ignored", fields=new)
        if len(self._logged) == MAX_LOGGED_NAMES:
            _log.warning(
                "further unknown fields are ignored without a word", after=MAX_LOGGED_NAMES
            )
