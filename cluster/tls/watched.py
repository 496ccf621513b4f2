"""Certificates as they are now: files are looked at again, and taken anew when they have changed.

    LOOKED AT --nothing new--> as they were
        | changed --they pass the trial--> taken
        |---------they do not--> as they were, told about once
        '--they change meanwhile--> as they were, until the next look

From any thread.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cluster.deadline import Clock
from cluster.errors import ConfigError
from cluster.logs import get_logger
from cluster.tls.files import CertificateFiles, server_context

LOOK_INTERVAL_S = 1.0
_log = get_logger("tls")


@dataclass(frozen=True, slots=True, eq=False)
class Certificates:
    """What the files held at one time; each time is a value of its own."""

    chain: bytes
    key: bytes = field(repr=False)
    authority: bytes | None
    context: ssl.SSLContext = field(repr=False)
    """Of a listener, made of them when they passed the trial; the files may be others by now. For
    one listener, which sets it up for its connections."""


class WatchedCertificates:
    """Looks at the files when it is asked, once in LOOK_INTERVAL_S."""

    def __init__(
        self,
        files: CertificateFiles,
        check: Callable[[CertificateFiles], ssl.SSLContext] = server_context,
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
        try:
            read = self._read()
        except ConfigError as fault:
            self._stamps = stamps
            _log.error("certificates stay as they were", error=fault.message)
            return
        if self._look() != stamps:
            return  # what passed the trial may not be what was read
        self._stamps, self._current = stamps, read
        _log.info("certificates have changed", chain=str(self.files.chain))

    def _look(self) -> tuple[object, ...]:
        return tuple(_stamp_of(path) for path in self._paths if path is not None)

    def _read(self) -> Certificates:
        context, authority = self._check(self.files), self.files.authority
        try:
            return Certificates(
                self.files.chain.read_bytes(),
                self.files.key.read_bytes(),
                None if authority is None else authority.read_bytes(),
                context,
            )
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
