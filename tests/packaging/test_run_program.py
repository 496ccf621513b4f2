"""A program that a test or a fixture runs says what went wrong, and leaves nothing behind."""

from __future__ import annotations

import shlex
import sys

import psutil
import pytest

from tests.fleet.support import wait_for
from tests.run_program import LAST_LINES, output_of, run_program

LIMIT_S = 60.0
NUMBERED = f"for at in range({LAST_LINES} + 5): print('line', at)"


def test_what_it_prints_is_returned_and_what_it_is_given_it_reads() -> None:
    words = [sys.executable, "-c", "print(input().upper())"]
    assert output_of(run_program(words, limit_s=LIMIT_S, stdin="done\n")) == "DONE\n"


def test_a_failure_has_the_command_its_exit_code_and_the_last_of_both_streams() -> None:
    program = f"import sys\n{NUMBERED}\nprint('at last', file=sys.stderr); sys.exit(7)"
    words = [sys.executable, "-c", program]
    done = run_program(words, limit_s=LIMIT_S)
    with pytest.raises(AssertionError) as raised:
        output_of(done)
    head, *lines = str(raised.value).removeprefix(shlex.join(words)).splitlines()
    assert head == ": exit code 7"
    assert lines[-1] == "at last" and len(lines) == LAST_LINES and "line 0" not in lines


def test_one_that_takes_too_long_says_how_far_it_came_and_is_ended_with_its_children() -> None:
    """The child holds both streams, as a build's do. A busy machine takes longer to begin."""
    command = ["sh", "-c", "sleep 3600 & echo begun $!; wait"]
    said = ""
    for limit_s in (0.5, 2.0, 8.0, 32.0, 128.0):
        with pytest.raises(AssertionError, match=f"not done after {limit_s:g} s") as raised:
            run_program(command, limit_s=limit_s)
        said = str(raised.value)
        if "\nbegun " in said:
            break
    child = int(said.rpartition("begun ")[2])
    wait_for(lambda: is_over(child), timeout_s=LIMIT_S, what="the end of the child")


def is_over(pid: int) -> bool:
    """Or waits for somebody who takes note of its end."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
