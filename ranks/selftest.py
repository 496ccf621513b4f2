"""A real sum over two ranks of this machine, for `splitserve doctor`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import torch

from cluster.deadline import Deadline
from cluster.errors import RankLost
from cluster.launcher.protocol import VISIBLE_DEVICES
from cluster.process.own_python import module_argv, module_environ
from cluster.supervisor.devices import visible_gpus
from ranks.collectives.rendezvous import (
    CollectiveKind,
    MeetingPlace,
    choose_kind,
    why_no_shared_memory,
)
from ranks.selftest_rank import SelftestLaunch, Sums

NUM_RANKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SummingReport:
    """What was measured."""

    kind: CollectiveKind
    """What ranks of this machine meet by."""
    why_slow: str
    """Why not in shared memory; empty where they do, and on GPUs."""
    median_us: float
    """Of summing one row over both ranks, of the slower one."""


def run_selftest(*, timeout_s: float = 90.0) -> SummingReport:
    """By the collective that a group on this machine would choose: of GPUs where there are two
    (UNTRIED), else of the CPU. Raises RankLost when a rank fails, is late, or sums wrongly."""
    device = "cuda:0" if torch.cuda.device_count() >= NUM_RANKS else "cpu"
    kind = choose_kind(torch.device(device), is_one_host=True)
    gpus = visible_gpus(os.environ)[:NUM_RANKS] if device != "cpu" else ()
    place = MeetingPlace.open(kind, NUM_RANKS, generation=1)
    try:
        with _ranks(place, device, gpus) as processes:
            sums = _told_by(processes, Deadline.after(timeout_s))
    finally:
        place.close()
    return SummingReport(
        kind=kind,
        why_slow=_why_slow(kind),
        median_us=max(each.median_us for each in sums),
    )


def _why_slow(kind: CollectiveKind) -> str:
    if kind is not CollectiveKind.GLOO:
        return ""
    return why_no_shared_memory() or ""


@contextmanager
def _ranks(
    place: MeetingPlace, device: str, gpus: Sequence[str]
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes, of which each sees its own of `gpus` alone, as ranks that serve do; all are
    gone afterwards."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(NUM_RANKS):
            launch = SelftestLaunch(rank=rank, rendezvous=place.rendezvous, device=device)
            processes.append(_start(launch, {VISIBLE_DEVICES: gpus[rank]} if gpus else {}))
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _start(launch: SelftestLaunch, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A descriptor of the segment has the same number there."""
    fd = launch.rendezvous.segment_fd
    return subprocess.Popen(
        module_argv("ranks.selftest_rank", msgspec.json.encode(launch).decode()),
        env={**os.environ, **module_environ(), **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=() if fd is None else (fd,),
    )


def _told_by(processes: Sequence[subprocess.Popen[bytes]], limit: Deadline) -> list[Sums]:
    sums = [_told(rank, process, limit) for rank, process in enumerate(processes)]
    if not all(each.are_right for each in sums):
        raise RankLost(
            "two ranks that sum ones and twos have something else than threes, or other rows than "
            "were sent to them"
        )
    return sums


def _told(rank: int, process: subprocess.Popen[bytes], limit: Deadline) -> Sums:
    try:
        out, errors = process.communicate(timeout=limit.remaining_s)
    except subprocess.TimeoutExpired as late:
        raise RankLost(f"rank {rank} of the self-test is late", ranks=(rank,)) from late
    lines = out.splitlines()
    if process.returncode != 0 or not lines:
        words = errors.decode(errors="replace").strip().splitlines()[-1:]
        ending = f"ended with {process.returncode}: {''.join(words) or 'without a word'}"
        raise RankLost(f"rank {rank} of the self-test {ending}", ranks=(rank,))
    return msgspec.json.decode(lines[-1], type=Sums)
