"""The memory of a group: of one generation, without a name, gone with its last holder."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from cluster.errors import ConfigError, WrongGeneration, status_of
from ranks.collectives.segment import MAX_RANKS, SharedSegment


def test_a_rank_of_another_generation_is_refused() -> None:
    segment = SharedSegment.create(2, generation=8)
    with pytest.raises(WrongGeneration, match="of generation 7 .* is of generation 8") as caught:
        SharedSegment.attach(os.dup(segment.fd), world_size=2, generation=7)
    assert status_of(caught.value).code == "wrong_generation"
    with pytest.raises(WrongGeneration, match="with 3 ranks"):
        SharedSegment.attach(os.dup(segment.fd), world_size=3, generation=8)
    segment.close()


def test_a_file_that_is_no_segment_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"something")
    with pytest.raises(WrongGeneration, match="of no group"):
        SharedSegment.attach(os.open(other, os.O_RDWR), world_size=2, generation=1)


def test_a_refused_descriptor_is_closed() -> None:
    segment = SharedSegment.create(2, generation=8)
    copy = os.dup(segment.fd)
    with pytest.raises(WrongGeneration):
        SharedSegment.attach(copy, world_size=2, generation=9)
    with pytest.raises(OSError):
        os.fstat(copy)
    segment.close()


def test_every_view_knows_who_was_given_up() -> None:
    segment = SharedSegment.create(3, generation=1)
    other = SharedSegment.attach(os.dup(segment.fd), world_size=3, generation=1)
    assert other.lost == ()
    segment.give_up(2)
    segment.give_up(0)
    assert segment.lost == other.lost == (0, 2)
    other.close()
    segment.close()


def test_a_segment_has_no_name_and_leaves_no_descriptor() -> None:
    gc.collect()
    before = sorted(os.listdir("/proc/self/fd")), sorted(os.listdir("/dev/shm"))
    segment = SharedSegment.create(2, generation=1)
    assert sorted(os.listdir("/dev/shm")) == before[1]
    segment.close()
    segment.close()
    assert sorted(os.listdir("/proc/self/fd")) == before[0]


def test_nobody_can_make_it_shorter_under_those_who_have_mapped_it() -> None:
    segment = SharedSegment.create(2, generation=1)
    with pytest.raises(PermissionError):
        os.ftruncate(segment.fd, 4096)
    segment.close()


def test_more_ranks_than_fit_are_refused_with_the_limit() -> None:
    with pytest.raises(ConfigError, match=f"use 1 to {MAX_RANKS}"):
        SharedSegment.create(MAX_RANKS + 1, generation=1)
