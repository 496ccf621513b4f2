"""Which GPU each worker of this machine gets, and why torch may find none of them."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from pathlib import Path

from cluster.launcher.protocol import VISIBLE_DEVICES

MIN_DRIVERS = {"12": 525, "13": 580}
"""The oldest NVIDIA driver that runs a program built for a major version of CUDA."""
_LIST_TIMEOUT_S = 10.0
_DEVICE_FILE = re.compile(r"nvidia\d+")
_LISTED = re.compile(r"GPU \d+:")
_DEVICE_NAME = re.compile(r"\d+|(GPU|MIG)-.+")
_DRIVER = re.compile(r"\b(\d{3,})\.\d+(\.\d+)?\b")


@dataclass(frozen=True, slots=True)
class NvidiaHost:
    """Where NVIDIA's driver shows itself and its cards."""

    device_folder: Path = Path("/dev")
    version_file: Path = Path("/proc/driver/nvidia/version")
    list_command: tuple[str, ...] = ()
    """What prints `GPU 0: ...` for each card; asked where no card has a file."""
    cuda_library: str | None = None
    """The driver's part that programs load, by name; None: it is not looked for."""

    def num_cards(self) -> int:
        """Those that this container was given, if it is one."""
        names = (path.name for path in self.device_folder.glob("nvidia*"))
        num_files = sum(_DEVICE_FILE.fullmatch(name) is not None for name in names)
        return num_files or self._num_listed()

    def _num_listed(self) -> int:
        """On WSL 2 the driver serves cards that have no files."""
        if not self.list_command:
            return 0
        try:
            done = subprocess.run(
                self.list_command, capture_output=True, text=True, timeout=_LIST_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0
        lines = done.stdout.splitlines() if done.returncode == 0 else []
        return sum(_LISTED.match(line) is not None for line in lines)

    def why_not_loaded(self) -> str | None:
        """What the loader says of the driver's library; None where it finds it."""
        if self.cuda_library is None:
            return None
        try:
            ctypes.CDLL(self.cuda_library)
        except OSError as error:
            return str(error)
        return None

    def driver(self) -> str | None:
        """Its version, such as 580.65.06; None where it does not tell."""
        try:
            found = _DRIVER.search(self.version_file.read_text().partition("\n")[0])
        except OSError:
            return None
        return found[0] if found else None


THIS_HOST = NvidiaHost(list_command=("nvidia-smi", "-L"), cuda_library="libcuda.so.1")


def visible_gpus(environ: Mapping[str, str], host: NvidiaHost = THIS_HOST) -> tuple[str, ...]:
    """Names that CUDA_VISIBLE_DEVICES understands: the variable's own, else one per card.

    The variable's names end at the first that names no device, such as -1: so CUDA reads it.
    """
    num_cards = host.num_cards()
    if num_cards and VISIBLE_DEVICES in environ:
        names = (name.strip() for name in environ[VISIBLE_DEVICES].split(","))
        return tuple(takewhile(_DEVICE_NAME.fullmatch, names))
    return tuple(str(ordinal) for ordinal in range(num_cards))


def gpu_environ(gpus: tuple[str, ...], first: int, num_ranks: int = 1) -> dict[str, str]:
    """One GPU for each rank of a worker, in turn from `first` on; nothing to say where there is no
    choice."""
    return {VISIBLE_DEVICES: ",".join(gpus_of(gpus, first, num_ranks))} if len(gpus) > 1 else {}


def gpus_of(gpus: tuple[str, ...], first: int, num_ranks: int) -> tuple[str, ...]:
    """Those of a worker's ranks, in turn from `first` on; fewer than ranks where there are fewer:
    such a worker does not start."""
    last = first + min(num_ranks, len(gpus))
    return tuple(gpus[place % len(gpus)] for place in range(first, last))


def ranks_on_fullest(gpus: tuple[str, ...], sizes: Sequence[int]) -> int:
    """Of workers of so many ranks each, which take the GPUs in turn."""
    firsts = accumulate(sizes, initial=0)
    taken = Counter(
        gpu
        for first, size in zip(firsts, sizes, strict=False)
        for gpu in gpus_of(gpus, first, size)
    )
    return max(taken.values(), default=0)


@dataclass(frozen=True, slots=True)
class UnusableGpu:
    """A card that is here and cannot be used: why, and what helps."""

    cause: str
    remedy: str


def why_unusable(built_for: str | None, host: NvidiaHost = THIS_HOST) -> UnusableGpu:
    """Of a card that torch does not find. `built_for` is torch's version of CUDA; None: without."""
    driver = host.driver()
    if built_for is None:
        return UnusableGpu("torch is built without CUDA", "install torch's build with CUDA")
    needed = MIN_DRIVERS.get(built_for.partition(".")[0])
    if driver is None or needed is None or int(driver.partition(".")[0]) >= needed:
        if (said := host.why_not_loaded()) is not None:
            return UnusableGpu(
                f"the card is here, and {host.cuda_library} of NVIDIA's driver cannot be loaded "
                f"({said})",
                "add the folder that has it to LD_LIBRARY_PATH (on GKE's nodes "
                "/usr/local/nvidia/lib64), or let NVIDIA's runtime start the container "
                "(runtimeClassName)",
            )
        return UnusableGpu(
            f"torch, built for CUDA {built_for}, cannot use it with NVIDIA's driver "
            f"{driver or 'of unknown version'}",
            "see what nvidia-smi says",
        )
    return UnusableGpu(
        f"torch is built for CUDA {built_for}, which needs NVIDIA's driver {needed} or later; "
        f"this one is {driver}",
        "update the driver, or install torch for an older CUDA (README, Installing)",
    )
