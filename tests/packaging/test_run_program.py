"""A program that a test or a fixture runs says what went wrong with it, and leaves nothing behind."""

from __future__ import annotations

import shlex
import sys

import psutil
import pytest

from tests.patience import PATIENCE
from tests.run_program import LAST_LINES, output_of, run_program

LIMIT_S = 60.0 * PATIENCE
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
    """The child holds both streams, as a build's do."""
    program = "echo begun; sleep 3600 & echo $!; wait"
    with pytest.raises(AssertionError, match=r"not done after 1 s\nbegun\n\d+") as raised:
        run_program(["sh", "-c", program], limit_s=1.0)
    child = int(str(raised.value).splitlines()[-1])
    try:
        psutil.Process(child).wait(LIMIT_S)
    except psutil.NoSuchProcess:
        return
