"""A rank that says what it was told, and then does what the spec in its launch says.

    wait        until it is ended
    exit N      writes two lines more and ends with N

It reads the launch without its type, which would import torch.
"""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from cluster.process.parent_death import die_with_parent


def main() -> int:
    die_with_parent()
    launch = msgspec.msgpack.decode(sys.stdin.buffer.read())
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    say(f"rank {launch['rank']} of {launch['world_size']}, devices {devices!r}, pid {os.getpid()}")
    say(f"threads wait: {os.environ.get('OMP_WAIT_POLICY')}, {os.environ.get('THP_OF_A_TEST')}")
    what, _, number = launch["spec"].decode().partition(" ")
    if what == "exit":
        say("something is wrong")
        say("it is the end")
        return int(number)
    signal.pause()
    return 0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
