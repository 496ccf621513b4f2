"""A log that cannot be written loses lines, says so once, and goes on when it can."""

from __future__ import annotations

from pathlib import Path

from cluster.launcher.log_file import RETRY_S, LogFile
from tests.engine.step.engine_scenario import VirtualClock


def test_a_log_goes_on_when_the_disk_has_room_again_and_says_what_is_missing(
    tmp_path: Path,
) -> None:
    path, said, clock = tmp_path / "w.log", [], VirtualClock()
    path.symlink_to("/dev/full")
    log = LogFile(path, said.append, clock=clock)
    for _ in range(5):
        log.write(b"lost\n")
        clock.now_s += RETRY_S
    path.unlink()
    log.close()
    clock.now_s += RETRY_S
    log.write(b"kept\n")
    log.close()
    assert path.read_text() == "\n[25 bytes of this log could not be written]\nkept\n"
    assert len(said) == 2 and "25 bytes were lost" in said[1]


def test_a_log_that_cannot_be_opened_is_only_lost(tmp_path: Path) -> None:
    said: list[str] = []
    log = LogFile(tmp_path / "no folder" / "w.log", said.append)
    log.write(b"lost\n")
    log.close()
    assert len(said) == 1 and "No such file" in said[0]
