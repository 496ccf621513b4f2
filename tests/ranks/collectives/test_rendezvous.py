"""What ranks meet by is chosen once, by the machine, and said."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest
import torch

import kernels.cpu.native_sources as native
from cluster.errors import ConfigError
from ranks.collectives.rendezvous import CollectiveKind, MeetingPlace, choose_kind, join

CPU = torch.device("cpu")


def test_ranks_of_one_host_meet_in_shared_memory(native_collectives: object) -> None:
    assert choose_kind(CPU, is_one_host=True) is CollectiveKind.SHARED_MEMORY


def test_ranks_of_several_hosts_meet_over_tcp_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert choose_kind(CPU, is_one_host=False) is CollectiveKind.GLOO
    assert "they are on several hosts" in caplog.text


def test_without_the_instructions_ranks_of_one_host_meet_over_tcp_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(native, "_cpu_flags", lambda: frozenset({"avx2"}))
    with caplog.at_level(logging.WARNING):
        assert choose_kind(CPU, is_one_host=True) is CollectiveKind.GLOO
    assert "this CPU lacks fma, f16c" in caplog.text


def test_ranks_with_gpus_meet_by_nccl() -> None:
    cuda = torch.device("cuda")
    assert choose_kind(cuda, is_one_host=True) is CollectiveKind.NCCL


def test_a_rank_that_cannot_have_what_the_conductor_chose_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = MeetingPlace.open(CollectiveKind.SHARED_MEMORY, 2, generation=1)
    monkeypatch.setattr(native, "_cpu_flags", lambda: frozenset({"avx2"}))
    with pytest.raises(ConfigError, match="rank 1 cannot meet the others .*lacks fma, f16c"):
        join(place.rendezvous, 1, deadline_s=1.0)
    place.close()


def test_where_the_system_gives_no_memory_without_a_name_ranks_meet_over_tcp(
    native_collectives: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*asked: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "memfd_create", refused)
    with caplog.at_level(logging.WARNING):
        assert choose_kind(CPU, is_one_host=True) is CollectiveKind.GLOO
    assert "gives no memory without a name" in caplog.text


def test_who_gives_a_rank_up_after_the_group_was_closed_does_no_harm() -> None:
    place = MeetingPlace.open(CollectiveKind.SHARED_MEMORY, 2, generation=1)
    place.close()
    place.give_up(1)


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(ConfigError, match=r"at 192\.0\.2\.1, where it cannot listen"):
        MeetingPlace.open(CollectiveKind.GLOO, 2, generation=1, address="192.0.2.1")
