"""Processes that step back: in their session, and among sessions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.process.priority import step_back

PROGRAM = """
import os
from pathlib import Path
from cluster.process.priority import step_back
step_back(7)
print(os.nice(0), Path("/proc/self/autogroup").read_text().split()[-1])
"""
OUR_AUTOGROUP = Path("/proc/self/autogroup")
needs_autogroups = pytest.mark.skipif(
    not (OUR_AUTOGROUP.exists() and OUR_AUTOGROUP.read_text()),
    reason="this kernel has no autogroups, or they are off or not in force in this cgroup",
)


def _niceness_of_child(*, leads_a_session: bool) -> tuple[int, int]:
    """(of the process, of its session) after `step_back(7)`."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        check=True,
        text=True,
        start_new_session=leads_a_session,
    )
    own, session = done.stdout.split()
    return int(own), int(session)


@needs_autogroups
def test_a_process_that_leads_its_session_steps_back_among_sessions_too() -> None:
    own, session = _niceness_of_child(leads_a_session=True)

    assert own == session == os.nice(0) + 7


@needs_autogroups
def test_a_session_that_somebody_else_leads_keeps_its_priority() -> None:
    before = int(OUR_AUTOGROUP.read_text().split()[-1])

    own, session = _niceness_of_child(leads_a_session=False)

    assert own == os.nice(0) + 7
    assert session == before


def test_no_niceness_changes_nothing(tmp_path: Path) -> None:
    before, autogroup = os.nice(0), tmp_path / "autogroup"
    autogroup.touch()

    step_back(0, autogroup=autogroup)

    assert os.nice(0) == before
    assert autogroup.read_text() == ""


AS_ITS_PARENT = """
import os
from cluster.process.priority import step_up_to_parent
os.nice(9)
step_up_to_parent()
print(os.nice(0), flush=True)
os.execvp("nice", ["nice"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel lets root alone")
def test_who_was_set_back_takes_its_parents_priority_and_what_it_starts_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_ITS_PARENT], capture_output=True, check=True, text=True
    )
    assert done.stdout.split() == [str(os.nice(0))] * 2
