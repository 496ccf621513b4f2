"""A real redis-server on a port of its own, and what may happen to one."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import IO

import pytest

from tests.free_ports import free_port

READY = "Ready to accept connections"
OLDEST = (6, 2)
"""As docs/operations.md asks for."""
_VERSION = re.compile(r"v=(\d+)\.(\d+)")


class RedisServer:
    """Runs while its block does; keeps nothing on disk, so that a killed one comes back empty.
    Skips the test where nobody has one."""

    def __init__(
        self, folder: Path, *options: str, host: str = "127.0.0.1", network: str | None = None
    ) -> None:
        """`network`: the name of a network namespace that it runs in, where `host` is."""
        self._folder = folder
        self._host = host
        self._runner = [] if network is None else ["ip", "netns", "exec", network]
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> RedisServer:
        self.port = self.port or free_port()
        self.start()
        return self

    def __exit__(self, *cause: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"redis://{self._host}:{self.port}/0"

    def start(self) -> None:
        """Returns once it takes connections; at the port that it had."""
        program = redis_program()
        terms = ["--port", str(self.port), "--bind", self._host, "--save", "", "--daemonize", "no"]
        self._process = subprocess.Popen(
            [*self._runner, program, *terms, "--dir", str(self._folder), *self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        _read_until_ready(self._process.stdout)

    def kill(self) -> None:
        """As if its machine were gone; idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def stall(self) -> None:
        """It keeps its connections and answers nobody."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After `stall`."""
        self._signal(signal.SIGCONT)

    def do(self, *words: str) -> bytes:
        """One command, as an operator would send it; the beginning of its reply as it is."""
        packed = "".join(f"${len(word.encode())}\r\n{word}\r\n" for word in words)
        with socket.create_connection((self._host, self.port), timeout=30) as connection:
            connection.sendall(f"*{len(words)}\r\n{packed}".encode())
            return connection.recv(65_536)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def redis_program() -> str:
    """Where it is. Skips the test where it is not, or is older than what a store has to be."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not here; `make test` installs it as root, with apt-get")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(map(int, _VERSION.findall(told)[0]))
    if version < OLDEST:
        has, needs = (".".join(map(str, each)) for each in (version, OLDEST))
        pytest.skip(f"redis-server is {has}, and a store takes {needs}")
    return program


def _read_until_ready(lines: IO[str]) -> None:
    said: list[str] = []
    for line in lines:
        said.append(line)
        if READY in line:
            return
    raise AssertionError(f"redis-server has ended: {''.join(said)}")
