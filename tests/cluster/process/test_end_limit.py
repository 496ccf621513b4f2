"""A process whose end hangs is gone all the same, and says where it hung if it can."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import psutil
import pytest

DEADLINE_S = 60.0
SOURCE = """
import asyncio, ctypes, time
from cluster.logs import configure_logging
from cluster.process.end_limit import EndLimit
configure_logging("tested")

async def hang_here():
    EndLimit({limit_s}).begin("the engine died")
    {hang}

asyncio.run(hang_here())
print("ended by itself")
"""


def run(hang: str, *, limit_s: float = 0.3) -> subprocess.CompletedProcess[str]:
    source = SOURCE.format(limit_s=limit_s, hang=hang)
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=DEADLINE_S
    )


@pytest.mark.parametrize("hang", ["await asyncio.Event().wait()", "time.sleep(3600)"])
def test_a_process_that_hangs_in_its_end_is_ended_and_says_where_it_stood(hang: str) -> None:
    done = run(hang)
    assert done.returncode == 1
    assert "does not come to its end" in done.stderr and "the engine died" in done.stderr
    assert "time.sleep" not in hang or "hang_here" in done.stderr


def test_a_library_that_holds_the_interpreter_keeps_no_process_alive() -> None:
    assert run("ctypes.PyDLL(None).sleep(3600)").returncode == 1


STARTS_A_GROUP = """
    import subprocess, sys
    from cluster.process.child_groups import OWN_GROUPS
    sleeper = [sys.executable, "-c", "import time; time.sleep(3600)"]
    OWN_GROUPS.add(subprocess.Popen(sleeper, start_new_session=True, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL).pid)
    print(*OWN_GROUPS._pids, flush=True)
    time.sleep(3600)
"""


def test_a_process_that_is_ended_takes_along_the_groups_that_it_has_started() -> None:
    done = run(STARTS_A_GROUP)
    assert done.returncode == 1
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(done.stdout)).wait(DEADLINE_S)


def test_a_process_that_ends_in_time_hears_nothing_of_it() -> None:
    done = run("pass", limit_s=3600.0)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended by itself\n", "")
