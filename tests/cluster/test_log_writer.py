"""Logs to a pipe that nobody reads hold nobody up."""

from __future__ import annotations

import os
import subprocess
import sys

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
