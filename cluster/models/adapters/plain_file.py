"""A file of an adapter's folder, opened: a plain one, which lies under the root when all links are
followed.

opened, its size bounded -> read once, from its beginning to its end -> whole, or changed meanwhile
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Final

from cluster.errors import AdapterRefused, AdapterUnread, SplitserveError

CHUNK_BYTES: Final = 8 << 20
"""Of a file, in memory at once."""
_AMISS = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG))
"""What lies there is wrong; all other errors of storage may pass."""

Progressed = Callable[[], None]
"""Is called after each part of the work; ends it by raising."""


def unwatched() -> None:
    """Of a reading that nobody watches."""


class PlainFile:
    """Every method raises AdapterUnread where storage fails, or the file is another by now."""

    def __init__(self, file: FileIO, name: str, progressed: Progressed) -> None:
        self._file, self._name, self._progressed = file, name, progressed
        try:
            self.num_bytes = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise self._unread(error) from error

    def take(self, num_bytes: int) -> bytes:
        """Those that come next."""
        room = bytearray(num_bytes)
        self.fill(memoryview(room))
        return bytes(room)

    def fill(self, room: memoryview) -> None:
        """With the bytes that come next."""
        while room:
            num_bytes = self._read_into(room[:CHUNK_BYTES])
            if not num_bytes:
                raise AdapterUnread(f"{self._name} has become shorter while it was read")
            room = room[num_bytes:]
            self._progressed()

    def end(self) -> None:
        """Once all of them are read."""
        if self._read_into(memoryview(bytearray(1))):
            raise AdapterUnread(f"{self._name} grows while it is read")

    def _read_into(self, room: memoryview) -> int:
        try:
            return self._file.readinto(room) or 0
        except OSError as error:
            raise self._unread(error) from error

    def _unread(self, error: OSError) -> AdapterUnread:
        return AdapterUnread(f"{self._name} cannot be read now: {error.strerror or error}")


@contextlib.contextmanager
def plain_file(
    root: Path, path: Path, *, max_bytes: int, if_absent: str, progressed: Progressed
) -> Iterator[PlainFile]:
    """Raises AdapterRefused for one that is none (`if_absent`: in these words) or has more bytes,
    and AdapterUnread."""
    with _opened(root, path, if_absent) as raw:
        file = PlainFile(raw, f"{path.parent.name}/{path.name}", progressed)
        if file.num_bytes > max_bytes:
            raise AdapterRefused(
                f"{path.name} has {file.num_bytes:,} bytes; allowed: {max_bytes:,}"
            )
        yield file


def _opened(root: Path, path: Path, if_absent: str) -> FileIO:
    top = top_of(root)
    try:
        real = path.resolve(strict=True)
        if not (top in real.parents and stat.S_ISREG(real.stat().st_mode)):
            raise AdapterRefused(f"{path.name} leads out of the folder of adapters")
        return real.open("rb", buffering=0)
    except (OSError, RuntimeError) as error:
        raise instead_of(error, f"{path.parent.name}/{path.name}", if_amiss=if_absent) from error


def top_of(root: Path) -> Path:
    """The root without any link left in it. One that is not there may be mounted again. Raises
    AdapterUnread."""
    try:
        return root.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise AdapterUnread(f"the folder of adapters cannot be read now: {error}") from error


def instead_of(error: Exception, what: str, *, if_amiss: str) -> SplitserveError:
    """What is raised in its place: a call that storage has failed may be answered another time."""
    if isinstance(error, OSError) and error.errno not in _AMISS:
        return AdapterUnread(f"{what} cannot be read now: {error.strerror or error}")
    return AdapterRefused(if_amiss)
