"""Leave to read an adapter and to write it to LoRA ranks of the stacks, which may be taken back.

A reading has it until these are to be another's: from then on it writes nothing more, whenever
its files answer.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from cluster.errors import AdapterRefused


class Permit:
    """Of one reading. Any thread may ask, and take it back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_good = True
        self.num_done = 0
        """Parts of the work: where it grows the reading goes on."""

    def go_on(self) -> None:
        """Some of the work is done. Raises AdapterRefused where no more is wanted."""
        if not self._is_good:
            raise AdapterRefused("the adapter is not wanted any more")
        self.num_done += 1

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """A short while in which it is not taken back. Raises AdapterRefused where it was."""
        with self._lock:
            self.go_on()
            yield

    def take_back(self) -> None:
        """Waits for what is being written, which is in memory: never for files."""
        with self._lock:
            self._is_good = False
