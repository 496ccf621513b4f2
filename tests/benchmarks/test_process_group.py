"""What a measured program is given of the surroundings in which its benchmark runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.peers.process_group import ProcessGroup

_TELL = "import os, json; print(json.dumps(dict(os.environ)), flush=True)"


def test_a_program_is_not_given_what_its_benchmark_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make test-vllm` and SPLITSERVE_PEERS say something to us; a router would refuse them."""
    monkeypatch.setenv("SPLITSERVE_TEST_VLLM", "1")
    monkeypatch.setenv("SPLITSERVE_HOME", "/somewhere")
    group = ProcessGroup(
        [sys.executable, "-c", _TELL], log=tmp_path / "log", env={"OMP_NUM_THREADS": "2"}
    )
    try:
        told = group.stdout.readline()
    finally:
        group.stop()
    assert '"OMP_NUM_THREADS": "2"' in told and '"SPLITSERVE_HOME": "/somewhere"' in told
    assert "SPLITSERVE_TEST_VLLM" not in told
