"""Ranks as child processes: started with their launch, their log passed on, their end told."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.errors import ConfigError
from cluster.launcher.protocol import VISIBLE_DEVICES
from ranks.collectives.rendezvous import CollectiveKind, Rendezvous
from ranks.launch import RankLaunch, TcpWay
from ranks.processes import LocalRank, ProcessSpawner
from ranks.spawner import RankEnd, RankPlaces

LIMIT_S = 60.0
LAUNCH = RankLaunch(
    spec=b"opaque",
    rank=1,
    world_size=2,
    generation=7,
    node="here",
    rendezvous=Rendezvous(
        kind=CollectiveKind.GLOO, generation=7, world_size=2, store_host="h", store_port=1
    ),
    reports_address="ipc:///nowhere",
    way=TcpWay("", ""),
)


@pytest.fixture
def spawner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessSpawner]:
    """Its ranks run what a test writes to `child.py`."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = ProcessSpawner("child")
    yield made
    made.close()
    made.close()


def ended(rank: LocalRank) -> RankEnd:
    pause = threading.Event()
    for _ in range(int(LIMIT_S / 0.02)):
        end = rank.poll()
        if end is not None:
            return end
        pause.wait(0.02)
    raise AssertionError("it does not end")


def test_a_launch_arrives_as_it_was_sent() -> None:
    assert RankLaunch.unpack(LAUNCH.pack()) == LAUNCH


def test_a_child_gets_its_launch_and_its_last_lines_are_kept(
    spawner: ProcessSpawner, tmp_path: Path
) -> None:
    (tmp_path / "child.py").write_text(
        "import sys\n"
        "from ranks.launch import RankLaunch\n"
        "launch = RankLaunch.unpack(sys.stdin.buffer.read())\n"
        "for line in range(9): print('line', line, launch.generation, file=sys.stderr)\n"
        "sys.stderr.write('no end')\n"
        "sys.exit(3)\n"
    )
    rank = spawner.start(LAUNCH)
    end = ended(rank)
    assert (end.exit_code, end.ending, end.is_own_doing) == (3, "exit code 3", True)
    assert end.last_lines == (*(f"line {line} 7" for line in range(5, 9)), "no end")
    assert rank.poll() == end


def test_a_child_that_is_killed_says_by_which_signal(
    spawner: ProcessSpawner, tmp_path: Path
) -> None:
    (tmp_path / "child.py").write_text("import signal\nsignal.pause()\n")
    rank = spawner.start(LAUNCH)
    assert rank.poll() is None
    rank.kill()
    rank.kill()
    end = ended(rank)
    assert (end.ending, end.is_own_doing, end.last_lines) == ("signal SIGKILL", False, ())


def test_closing_ends_every_child(spawner: ProcessSpawner, tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text("import signal\nsignal.pause()\n")
    ranks = [spawner.start(LAUNCH) for _ in range(2)]
    spawner.close()
    assert [ended(rank).ending for rank in ranks] == ["signal SIGKILL", "signal SIGKILL"]


def test_a_log_without_end_keeps_nobody(spawner: ProcessSpawner, tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text("import os\nwhile True: os.write(2, b'x' * 4096)\n")
    rank = spawner.start(LAUNCH)
    for _ in range(20):
        assert rank.poll() is None
    rank.kill()
    assert ended(rank).ending == "signal SIGKILL"


def test_ranks_of_one_host_share_its_cores_and_memory() -> None:
    placement = ProcessSpawner("child").place(3)
    assert placement.is_one_host
    assert placement.ranks_beside(1) == (0, 1, 2)
    spread = RankPlaces(nodes=("a", "b", "a"), address="10.0.0.1")
    assert not spread.is_one_host
    assert spread.ranks_beside(2) == (0, 2)


def test_each_rank_sees_its_own_gpu_alone_and_the_conductor_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(VISIBLE_DEVICES, "3,GPU-7")
    (tmp_path / "child.py").write_text(
        f"import os, sys\nprint(os.environ['{VISIBLE_DEVICES}'], file=sys.stderr)\n"
    )
    with contextlib.closing(ProcessSpawner("child", gpus=("3", "GPU-7"))) as spawner:
        spawner.place(2)
        assert os.environ[VISIBLE_DEVICES] == "3"
        assert ended(spawner.start(LAUNCH)).last_lines == ("GPU-7",)


def test_too_few_gpus_are_refused_with_a_table_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VISIBLE_DEVICES, "0,GPU-7")
    spawner = ProcessSpawner("child", gpus=("0", "GPU-7"))
    assert spawner.place(2).is_one_host
    with pytest.raises(ConfigError, match=r"rank 1 +1 GPU +GPU GPU-7\n  rank 2 +1 GPU +none free"):
        spawner.place(3)
