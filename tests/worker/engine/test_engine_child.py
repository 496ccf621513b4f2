"""The operating system's side of an engine, over programs that Python brings along."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cluster.process.child_groups import OWN_GROUPS
from cluster.process.exit_watch import exit_of
from tests.worker.engine import large_pages
from worker.engine import engine_child
from worker.engine.engine_child import EngineChild

DEADLINE_S = 60.0
FAILS_ON_ITS_INPUT = "json.tool"
"""`python -m json.tool` says on standard error what is wrong with its input, and ends with 1."""


class BuggyWriter:
    """Of the log: the first chunk meets a bug."""

    num_calls = 0

    def write(self, data: bytes) -> None:
        self.num_calls += 1
        if self.num_calls == 1:
            raise KeyError("a bug of ours")


async def test_a_bug_in_passing_the_log_on_is_told_and_the_log_is_still_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine_child, "STANDARD_ERROR", BuggyWriter())
    monkeypatch.setattr(engine_child, "_OUTPUT_GRACE_S", DEADLINE_S)
    launch = tmp_path / "launch"
    launch.write_text("no json")
    child = EngineChild(FAILS_ON_ITS_INPUT, launch)
    assert child.pid in OWN_GROUPS, "it goes with this process, however that ends"
    async with asyncio.timeout(DEADLINE_S):
        assert "exit code 1): Expecting value" in await child.ended
    await child.close()
    assert child.pid not in OWN_GROUPS
    said = "".join(capsys.readouterr())
    assert "log of an engine" in said and "a bug of ours" in said


async def test_an_engine_that_ends_by_a_signal_without_a_name_has_ended(tmp_path: Path) -> None:
    launch = tmp_path / "launch"
    os.mkfifo(launch)
    held = os.open(launch, os.O_RDWR)
    child = EngineChild(FAILS_ON_ITS_INPUT, launch)  # waits for input
    os.kill(child.pid, signal.SIGRTMIN + 6)
    async with asyncio.timeout(DEADLINE_S):
        assert f"ended (signal {signal.SIGRTMIN + 6}): " in await child.ended
    await child.close()
    os.close(held)


async def test_what_lies_in_the_working_directory_is_not_imported_in_place_of_a_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('another json')")
    launch = tmp_path / "launch"
    launch.write_text("no json")
    child = EngineChild(FAILS_ON_ITS_INPUT, launch)
    async with asyncio.timeout(DEADLINE_S):
        assert "Expecting value" in await child.ended
    await child.close()


@pytest.mark.skipif(not large_pages.ARE_GIVEN, reason="this system gives no large pages on request")
async def test_large_tensors_of_an_engine_lie_in_large_pages(tmp_path: Path) -> None:
    launch = tmp_path / "launch"
    launch.touch()
    child = EngineChild("tests.worker.engine.large_pages", launch)
    async with asyncio.timeout(DEADLINE_S):
        how = await child.ended
    await child.close()
    assert int(how.rpartition(":")[2]) >= large_pages.NUM_BYTES // 2


async def test_closing_ends_also_in_the_turn_in_which_the_log_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python 3.11's wait_for loses a cancel that comes with what it waited for."""

    async def never_drained(child: EngineChild, log: asyncio.StreamReader) -> None:
        await asyncio.Event().wait()

    has_ended = asyncio.Event()

    async def told_exit_of(*given: Any, **named: Any) -> int:
        code = await exit_of(*given, **named)
        has_ended.set()
        return code

    monkeypatch.setattr(EngineChild, "_relay", never_drained)
    monkeypatch.setattr(engine_child, "exit_of", told_exit_of)
    monkeypatch.setattr(engine_child, "_OUTPUT_GRACE_S", DEADLINE_S)
    launch = tmp_path / "launch"
    launch.write_text("no json")
    child = EngineChild(FAILS_ON_ITS_INPUT, launch)
    async with asyncio.timeout(DEADLINE_S):
        await has_ended.wait()
        child._is_drained.set()  # the watch waits for it, and is woken and cancelled at once
        await child.close()
