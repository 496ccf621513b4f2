"""Real vLLM servers behind the router: minutes, and vLLM's own environment (`make test-vllm`)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from benchmarks.bench_vllm import measured, options_in, servers_of
from benchmarks.peers.contestant import python_of
from benchmarks.vllm_pair.comparison import OURS, THEIRS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        "SPLITSERVE_TEST_VLLM" not in os.environ, reason="takes 15 minutes: make test-vllm"
    ),
    pytest.mark.skipif(
        python_of("vllm") is None, reason="vLLM is not installed: benchmarks/peers/install.sh vllm"
    ),
]
NUM_LATE = 100


def test_no_answer_of_a_real_pair_is_wrong_after_its_lease_and_prefixes_are_found(
    tmp_path: Path,
) -> None:
    options = options_in(["--late", str(NUM_LATE)])
    with servers_of(options, tmp_path) as servers:
        late, hits = asyncio.run(measured(servers, tmp_path, options))
    ours, theirs = late.details[OURS], late.details[THEIRS]
    assert ours["num_answers"] == theirs["num_late"] == NUM_LATE and ours["num_late"] > 0
    assert (ours["num_wrong"], ours["num_errors"]) == (0, 0)
    assert theirs["num_wrong"] > 0 and theirs["late_notifications"] > 0
    assert hits.details[OURS]["hit_rate"] >= hits.details[THEIRS]["hit_rate"]
