"""The self-test that the doctor runs: real ranks, and what is said of those that fail."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from cluster.errors import RankLost
from kernels.cpu import native_sources
from kernels.tape.collective import ReceivedRows
from ranks import selftest
from ranks.collectives.rendezvous import CollectiveKind
from ranks.selftest import run_selftest
from ranks.selftest_rank import SelftestLaunch, Sums, exchanges_rightly
from tests.kernels.ranks import ThreadRank, run_ranks


@pytest.mark.long
def test_without_the_instructions_ranks_sum_over_tcp_and_the_report_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native_sources, "_cpu_flags", lambda: frozenset({"avx2"}))
    report = run_selftest()
    assert report.kind is CollectiveKind.GLOO and report.median_us > 0
    assert "this CPU lacks fma, f16c" in report.why_slow


def test_a_rank_that_ends_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        selftest, "module_argv", lambda *_: ("/bin/sh", "-c", "echo gone >&2; exit 3")
    )
    with pytest.raises(RankLost, match="rank 0 of the self-test ended with 3: gone"):
        run_selftest()


def test_a_rank_that_is_late_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "module_argv", lambda *_: ("/bin/sleep", "600"))
    with pytest.raises(RankLost, match="rank 0 of the self-test is late"):
        run_selftest(timeout_s=0.2)


def test_wrong_sums_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Sums(median_us=1.0, are_right=False)
    monkeypatch.setattr(selftest, "_told", lambda *_: wrong)
    with pytest.raises(RankLost, match="something else than threes"):
        run_selftest()


def test_each_rank_on_gpus_sees_its_own_alone_as_ranks_that_serve_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[tuple[str, Mapping[str, str]]] = []

    def start(launch: SelftestLaunch, environ: Mapping[str, str]) -> Any:
        started.append((launch.device, environ))
        return subprocess.Popen(("/bin/true",), stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(selftest, "visible_gpus", lambda environ: ("4", "GPU-8a", "6"))
    monkeypatch.setattr(selftest, "_start", start)
    with pytest.raises(RankLost, match="without a word"):
        run_selftest()
    assert started == [
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "4"}),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "GPU-8a"}),
    ]


class ConfusedRank(ThreadRank):
    """Rows come in another order than that of the ranks."""

    def all_to_all(self, rows: torch.Tensor, num_rows: Sequence[int]) -> ReceivedRows:
        """See ExpertCollective."""
        received = super().all_to_all(rows, num_rows)
        return ReceivedRows(received.rows.flip(0), received.num_rows)


@pytest.mark.parametrize(("kind", "is_right"), [(ThreadRank, True), (ConfusedRank, False)])
def test_rows_that_come_from_another_rank_than_they_should_are_noticed(
    kind: type[ThreadRank], is_right: bool
) -> None:
    found = run_ranks(3, lambda _, group: exchanges_rightly(group, torch.device("cpu")), kind)
    assert found == [is_right] * 3
