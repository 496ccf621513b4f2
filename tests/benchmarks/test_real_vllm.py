"""Real vLLM servers behind the router: minutes, and vLLM's own environment (`make test-vllm`)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.bench_vllm import main
from benchmarks.peers.contestant import python_of
from benchmarks.vllm_pair.comparison import OURS, THEIRS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        "SPLITSERVE_TEST_VLLM" not in os.environ, reason="takes 10 minutes: make test-vllm"
    ),
    pytest.mark.skipif(
        python_of("vllm") is None, reason="vLLM is not installed: benchmarks/peers/install.sh vllm"
    ),
]


def test_no_answer_of_a_real_pair_is_wrong_after_its_lease_and_prefixes_are_found(
    tmp_path: Path,
) -> None:
    result = tmp_path / "vllm.json"
    is_missed = main(["--logs", str(tmp_path), "--json", str(result)])
    told = json.loads(result.read_text())
    ours, theirs = told["late_reads"][OURS], told["late_reads"][THEIRS]
    assert ours["num_late_scored"] > 0 and ours["num_scored"] >= 100
    assert (ours["num_wrong"], ours["num_others_facts"], ours["num_errors"]) == (0, 0, 0)
    assert theirs["num_wrong"] > 0 and theirs["late_notifications"] > 0
    assert not is_missed
