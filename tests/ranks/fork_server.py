"""`python -m tests.ranks.fork_server DESCRIPTOR`: forks ranks and engines, all imports done.

    an order, with three descriptors -> a fork that runs the module as its main -> its pid
    the fork has ended, and is reaped -> its exit code, on the last of these descriptors

Such imports cost two seconds of processor time, a fork some milliseconds. Nobody here has a
thread, so a fork is whole. It ends when the socket of orders does, and its forks with it.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import select
import socket
import struct
import sys
import traceback
from dataclasses import dataclass

import msgspec
import torch

from cluster.log_writer import STANDARD_ERROR

ENTRY_MODULES = (
    "prefill_worker.rank_process",
    "decode_worker.rank_process",
    "tests.engine.runner.ranks.echo_rank",
    "tests.worker.odd_process",
)
MOST_BYTES = 1 << 17
"""Of an order, whose environment is the most of it."""
EXIT_CODE = struct.Struct("i")
PID = struct.Struct("i")
NUM_DESCRIPTORS = 3


class ForkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Beside it come the fork's standard input and error, and where its exit code goes."""

    module: str
    environ: dict[str, str]
    leads_session: bool
    """As with `start_new_session`."""


@dataclass(frozen=True, slots=True)
class Fork:
    """One that runs."""

    pid: int
    told_at: int
    """Descriptor of ours, for its exit code."""


class ForkServer:
    """Until the socket ends."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._forks: dict[int, Fork] = {}
        """By their pidfds."""

    def serve(self) -> None:
        """Returns when the socket has ended."""
        while True:
            ready, _, _ = select.select([self._orders, *self._forks], [], [])
            for pidfd in [each for each in ready if each in self._forks]:
                self._reap(pidfd)
            if self._orders in ready and not self._take():
                return

    def _take(self) -> bool:
        body, descriptors, _, _ = socket.recv_fds(self._orders, MOST_BYTES, NUM_DESCRIPTORS)
        if not body:
            return False
        standard_input, standard_error, told_at = descriptors
        pid = os.fork()
        if pid == 0:
            become(msgspec.msgpack.decode(body, type=ForkOrder), standard_input, standard_error)
        os.close(standard_input)
        os.close(standard_error)
        self._forks[os.pidfd_open(pid)] = Fork(pid, told_at)
        self._orders.send(PID.pack(pid))
        return True

    def _reap(self, pidfd: int) -> None:
        fork = self._forks.pop(pidfd)
        _, status = os.waitpid(fork.pid, 0)
        os.close(pidfd)
        with open(fork.told_at, "wb", buffering=0) as told:
            told.write(EXIT_CODE.pack(os.waitstatus_to_exitcode(status)))


def become(order: ForkOrder, standard_input: int, standard_error: int) -> None:
    """In a fork, for the rest of its life: as `python -m <module>` with these descriptors."""
    if order.leads_session:
        os.setsid()
    os.dup2(standard_input, 0)
    os.dup2(standard_error, 2)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    os.environ.clear()
    os.environ.update(order.environ)
    sys.argv[:] = [order.module]
    code = 1
    try:
        runpy.run_module(order.module, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        STANDARD_ERROR.flush()
        os._exit(code)


def main() -> None:
    """Imports everything, then serves."""
    torch.set_num_threads(1)
    for module in ENTRY_MODULES:
        importlib.import_module(module)
        del sys.modules[module]  # each fork runs one of them as its main
    gc.collect()
    gc.freeze()  # a collector that looks at an object copies its page
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        ForkServer(orders).serve()


if __name__ == "__main__":
    main()
