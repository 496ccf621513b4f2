"""Certificates as they are now: files are looked at again, and taken anew when they have changed.

    LOOKED AT --nothing new--> as they were
        | changed --they pass the trial--> taken
        '---------they do not--> as they were, told about once

From any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cluster.deadline import Clock
from cluster.errors import ConfigError
from cluster.logs import get_logger
from cluster.tls.files import CertificateFiles, check_usable

LOOK_INTERVAL_S = 1.0
_log = get_logger("tls")


@dataclass(frozen=True, slots=True, eq=False)
class Certificates:
    """What the files held at one time; each time is a value of its own."""

    chain: bytes
    key: bytes = field(repr=False)
    authority: bytes | None


class WatchedCertificates:
    """Looks at the files when it is asked, once in LOOK_INTERVAL_S."""

    def __init__(
        self,
        files: CertificateFiles,
        check: Callable[[CertificateFiles], None] = check_usable,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        """Raises ConfigError for files that are not there or do not pass `check`."""
        self.files = files
        self._check = check
        self._clock = clock
        self._lock = threading.Lock()
        self._stamps = self._look()
        self._looked_s = clock()
        self._current = self._read()

    def current(self) -> Certificates:
        """The last that were good. Their time may have passed since."""
        with self._lock:
            if self._clock() - self._looked_s >= LOOK_INTERVAL_S:
                self._looked_s = self._clock()
                self._look_again()
            return self._current

    def own_fault(self) -> str | None:
        """What is wrong with them by now, in a sentence."""
        try:
            self._check(self.files)
        except ConfigError as fault:
            return fault.message
        return None

    def _look_again(self) -> None:
        stamps = self._look()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._current = self._read()
        except ConfigError as fault:
            _log.error("certificates stay as they were", error=fault.message)
            return
        _log.info("certificates have changed", chain=str(self.files.chain))

    def _look(self) -> tuple[object, ...]:
        return tuple(_stamp_of(path) for path in self._paths if path is not None)

    def _read(self) -> Certificates:
        self._check(self.files)
        try:
            chain, key = self.files.chain.read_bytes(), self.files.key.read_bytes()
            authority = self.files.authority
            return Certificates(chain, key, None if authority is None else authority.read_bytes())
        except OSError as fault:
            raise ConfigError(f"certificates cannot be read: {fault}") from fault

    @property
    def _paths(self) -> tuple[Path | None, ...]:
        return (self.files.chain, self.files.key, self.files.authority)


def _stamp_of(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
