"""The self-test that the doctor runs: real ranks, and what is said of those that fail."""

from __future__ import annotations

import pytest

from cluster.errors import RankLost
from kernels.cpu import native_sources
from ranks import selftest
from ranks.collectives.rendezvous import CollectiveKind
from ranks.selftest import run_selftest
from ranks.selftest_rank import Sums


@pytest.mark.long
def test_without_the_instructions_ranks_sum_over_tcp_and_the_report_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native_sources, "_cpu_flags", lambda: frozenset({"avx2"}))
    report = run_selftest()
    assert report.kind is CollectiveKind.GLOO and report.median_us > 0
    assert "this CPU lacks avx512f" in report.why_slow


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
