"""Logs to a pipe that nobody reads hold nobody up."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.log_writer import MAX_WAITING_BYTES, LogWriter

DEADLINE_S = 60.0
MORE_THAN_A_PIPE_HOLDS = 1024 * 1024

SOURCE = """
from cluster.logs import configure_logging, get_logger
configure_logging("tested")
for number in range(20_000):
    get_logger("test").error("said", number=number)
print("went on", flush=True)
"""


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_process_whose_log_nobody_reads_goes_on_and_ends(pipe: tuple[int, int]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SOURCE],
        stdout=subprocess.PIPE,
        stderr=pipe[1],
        check=True,
        timeout=DEADLINE_S,
    )
    assert done.stdout == b"went on\n"


def test_every_line_arrives_in_order_at_a_reader_that_is_only_late(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1])
    lines = [b"%07d\n" % number for number in range(MORE_THAN_A_PIPE_HOLDS // 8)]
    for line in lines:
        writer.write(line)
    found = b""
    while len(found) < MORE_THAN_A_PIPE_HOLDS:
        found += os.read(pipe[0], 65536)
    assert found == b"".join(lines)
    assert writer.flush(DEADLINE_S)


def test_lines_beyond_the_limit_are_lost_and_counted_in_the_next_that_gets_through(
    pipe: tuple[int, int],
) -> None:
    writer = LogWriter(pipe[1])
    line = b"x" * (64 * 1024 - 1) + b"\n"
    num_lines = 2 * MAX_WAITING_BYTES // len(line)
    for _ in range(num_lines):
        writer.write(line)
    assert not writer.flush(0.0)
    found = b""
    while b"num_lost" not in found:
        found += os.read(pipe[0], 65536)
    while not writer.flush(0.01):
        found += os.read(pipe[0], 65536)
    os.set_blocking(pipe[0], False)
    try:
        while chunk := os.read(pipe[0], 65536):
            found += chunk
    except BlockingIOError:
        pass
    told = [int(text.split(b"}")[0]) for text in found.split(b'"num_lost":')[1:]]
    assert sum(told) + found.count(line) == num_lines and sum(told) > 0


def test_a_descriptor_that_cannot_be_written_costs_the_lines_and_nothing_else() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    writer = LogWriter(write_end)
    writer.write(b"nobody will ever read this\n")
    assert writer.flush(DEADLINE_S)
    os.close(write_end)


class CountingWriter(LogWriter):
    """How often it writes."""

    num_writes = 0

    def _write(self, data: bytes) -> int:
        self.num_writes += 1
        return super()._write(data)


def test_lines_that_come_one_after_the_other_are_written_together(pipe: tuple[int, int]) -> None:
    writer = CountingWriter(pipe[1])
    for number in range(1000):
        writer.write(b"%03d\n" % number)
    assert writer.flush(DEADLINE_S)
    assert os.read(pipe[0], 65536) == b"".join(b"%03d\n" % number for number in range(1000))
    assert writer.num_writes < 100


class BuggyWriter(LogWriter):
    """What it is to write first meets a bug."""

    num_lines = 0

    def _write(self, data: bytes) -> int:
        self.num_lines += 1
        if self.num_lines == 1:
            raise KeyError("a bug of ours")
        return super()._write(data)


def test_a_bug_in_the_logs_thread_costs_what_it_held_and_is_told_by_the_next(
    pipe: tuple[int, int],
) -> None:
    writer = BuggyWriter(pipe[1])
    writer.write(b"lost\n")
    assert writer.flush(DEADLINE_S)
    writer.write(b"written\n")
    assert writer.flush(DEADLINE_S)
    told, line = os.read(pipe[0], 65536).splitlines()
    assert b"could not be written" in told and b"a bug of ours" in told
    assert line == b"written"


FORKED = """
import os
from cluster.log_writer import STANDARD_ERROR
STANDARD_ERROR.write(b"before\\n")
assert STANDARD_ERROR.flush(60)
if os.fork() == 0:
    STANDARD_ERROR.write(b"after\\n")
    os._exit(0 if STANDARD_ERROR.flush(60) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_log_whose_thread_is_gone_gets_another_one() -> None:
    """Threads do not go along where a process is forked."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stderr) == (0, b"before\nafter\n")


def test_a_full_pipe_that_does_not_block_is_waited_for(pipe: tuple[int, int]) -> None:
    """Whoever shares the descriptor may have set it so."""
    os.set_blocking(pipe[1], False)
    writer = LogWriter(pipe[1])
    lines = [b"%07d\n" % number for number in range(MORE_THAN_A_PIPE_HOLDS // 8)]
    for line in lines:
        writer.write(line)
    assert not writer.flush(0.1)
    found = b""
    while len(found) < MORE_THAN_A_PIPE_HOLDS:
        ready, _, _ = select.select([pipe[0]], [], [], DEADLINE_S)
        assert ready, "the rest never came"
        found += os.read(pipe[0], 65536)
    assert found == b"".join(lines)


class FullDisk(LogWriter):
    """Takes so many bytes, then no more until there is room again."""

    room_bytes = 0

    def _write(self, data: bytes) -> int:
        if not self.room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = super()._write(data[: self.room_bytes])
        self.room_bytes -= taken
        return taken


def test_lines_that_a_full_disk_does_not_take_are_counted_and_none_is_torn(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        writer = FullDisk(file.fileno())
        writer.room_bytes = len(b"whole\nha")
        writer.write(b"whole\n")
        writer.write(b"half\n")
        assert writer.flush(DEADLINE_S)
        writer.write(b"none\n")
        assert writer.flush(DEADLINE_S)
        writer.room_bytes = 10_000
        writer.write(b"again\n")
        assert writer.flush(DEADLINE_S)
    whole, torn, told, again = (tmp_path / "log").read_bytes().splitlines()
    assert (whole, torn, again) == (b"whole", b"ha", b"again")
    assert b'"num_lost":2' in told


def test_lines_of_two_processes_on_one_pipe_are_not_mixed(pipe: tuple[int, int]) -> None:
    """A pipe takes up to PIPE_BUF bytes at once, and more in parts."""
    writers = [LogWriter(pipe[1]), LogWriter(pipe[1])]
    lines = [bytes([letter]) * 99 + b"\n" for letter in b"ab"]
    num_lines = MORE_THAN_A_PIPE_HOLDS // 100
    for _ in range(num_lines):
        for writer, line in zip(writers, lines, strict=True):
            writer.write(line)
    found = b""
    while len(found) < 2 * num_lines * 100:
        found += os.read(pipe[0], 65536)
    assert set(found.splitlines(keepends=True)) == set(lines)
