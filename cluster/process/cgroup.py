"""Where the limits of this process stand: the folders of its control groups, both kinds of them.

    v2   /sys/fs/cgroup/<path of /proc/self/cgroup>              one tree for all controllers
    v1   /sys/fs/cgroup/<controller>/<path of /proc/self/cgroup>

A limit holds for whatever is inside, so each group around ours counts. A container sees its own
group at the root, whatever path it is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The groups of one process, as the kernel shows them."""

    root: Path = Path("/sys/fs/cgroup")
    membership: Path = Path("/proc/self/cgroup")

    def folders(self, controller: str) -> list[Path]:
        """That may limit what `controller` counts ("memory", "cpu"); they need not exist."""
        found = [folder for base, path in self._places(controller) for folder in _up(base, path)]
        return list(dict.fromkeys([*found, self.root, self.root / controller]))

    def _places(self, controller: str) -> Iterator[tuple[Path, str]]:
        """The folder of a tree, and our path in it."""
        try:
            lines = self.membership.read_text().splitlines()
        except OSError:
            return
        for line in lines:
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if not controllers:
                yield self.root, path
            elif controller in controllers.split(","):
                yield self.root / controller, path


OWN_CGROUPS = Cgroups()
"""Of this process."""


def _up(base: Path, path: str) -> Iterator[Path]:
    """From the innermost group to `base`. A path out of the container's view has dots in it."""
    names = [name for name in PurePosixPath(path).parts if name not in ("/", "..")]
    for depth in range(len(names), -1, -1):
        yield base.joinpath(*names[:depth])
