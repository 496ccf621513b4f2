"""Descriptors that a group shares go from one process to another over a Unix socket."""

from __future__ import annotations

import os
import resource
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.errors import RankLost
from ranks.descriptors import DescriptorDoor, fetch_descriptors

LIMIT_S = 60.0


def memory(content: bytes) -> int:
    fd = os.memfd_create("test")
    os.write(fd, content)
    return fd


def test_a_rank_gets_the_files_themselves_in_their_order(tmp_path: Path) -> None:
    given = [memory(b"one"), memory(b"two")]
    door = DescriptorDoor(tmp_path / "door", given)
    door.serve()  # nobody asks: it waits for nobody
    pause = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        asked = [threads.submit(fetch_descriptors, str(tmp_path / "door"), 2) for _ in range(2)]
        while not all(each.done() for each in asked):
            door.serve()
            pause.wait(0.01)
        for found in (each.result(LIMIT_S) for each in asked):
            assert [os.pread(fd, 9, 0) for fd in found] == [b"one", b"two"]
            assert not any(os.get_inheritable(fd) for fd in found)
            for fd in found:
                os.close(fd)
    door.close()
    door.close()
    for fd in given:
        os.close(fd)


def test_who_asks_and_is_gone_before_the_answer_ends_nothing(tmp_path: Path) -> None:
    given = [memory(b"one")]
    door = DescriptorDoor(tmp_path / "door", given)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.connect(str(tmp_path / "door"))
    door.serve()
    door.close()
    os.close(given[0])


def test_a_door_that_is_not_there_is_a_lost_conductor(tmp_path: Path) -> None:
    with pytest.raises(RankLost, match="cannot be fetched") as lost:
        fetch_descriptors(str(tmp_path / "nowhere"), 2)
    assert lost.value.ranks == (0,)


def test_the_door_serves_also_behind_a_thousand_other_files(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this process may open too few files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        door = DescriptorDoor(tmp_path / "door", [])
        assert door._socket.fileno() > 1023
        door.serve()
        door.close()
    finally:
        for fd in others:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
