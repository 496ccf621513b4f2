"""A network of its own for a Redis, whose packets the kernel loses when a test says so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class LossyNetwork:
    """A network namespace, and two ends of a wire: one here, one there."""

    def __init__(self) -> None:
        """Names and addresses by this process: others may have such a network as well."""
        pid = os.getpid()
        block = f"198.18.{pid >> 6 & 255}"  # kept for tests of networks (RFC 2544)
        first = (pid & 63) * 4
        self.name = f"store{pid}"
        self.here, self.there = f"{block}.{first + 1}", f"{block}.{first + 2}"
        self._end_here, self._end_there = f"sh{pid}", f"st{pid}"

    def open(self) -> None:
        """Raises CalledProcessError where this machine does not allow it."""
        _ip("netns", "add", self.name)
        ends = ("name", self._end_here, "type", "veth", "peer", "name", self._end_there)
        _ip("link", "add", *ends, "netns", self.name)
        _ip("addr", "add", f"{self.here}/30", "dev", self._end_here)
        _ip("link", "set", self._end_here, "up")
        _ip("-n", self.name, "addr", "add", f"{self.there}/30", "dev", self._end_there)
        self.heal()

    def close(self) -> None:
        """Both ends go with it."""
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)

    def drop(self) -> None:
        """All, both ways, without a word to either end."""
        _ip("-n", self.name, "link", "set", self._end_there, "down")

    def heal(self) -> None:
        """After `drop`."""
        _ip("-n", self.name, "link", "set", self._end_there, "up")


@contextmanager
def lossy_network() -> Iterator[LossyNetwork]:
    """Skips the test where there can be none."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and iproute2")
    network = LossyNetwork()
    try:
        try:
            network.open()
        except subprocess.CalledProcessError as cause:
            pytest.skip(f"no network namespace on this machine: {cause.stderr.decode().strip()}")
        yield network
    finally:
        network.close()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
