"""What the pages say of GPUs is what kernels were compiled for, and what has run on one."""

from __future__ import annotations

import json
import re

import pytest

from kernels.triton.gpu import HOPPER
from tests.kernels.gpus import ADA, AMPERE, BLACKWELL
from tests.packaging.test_import_cycles import ROOT

COMPILED_FOR = {".".join(map(str, gpu.capability)) for gpu in (AMPERE, ADA, HOPPER, BLACKWELL)}
HAS_NOT_RUN = {
    "README.md": "No GPU has run the CUDA code",
    "CHANGELOG.md": "none has run on a GPU",
    "docs/operations.md": "No kernel has run on a GPU yet",
}


def compiled_for_in(text: str) -> set[str]:
    """Compute capabilities that a page's one paragraph, or table, of them names."""
    if rows := re.findall(r"^\| (\d+\.\d [^|]*)\|", text, re.MULTILINE):
        return set(re.findall(r"\d+\.\d", " ".join(rows)))
    said = re.findall(r"for compute capability ([^(;]+)", text)
    return set(re.findall(r"\b\d+\.\d\b", " ".join(said)))


@pytest.mark.parametrize("page", HAS_NOT_RUN)
def test_a_page_names_the_gpus_that_kernels_were_compiled_for(page: str) -> None:
    assert compiled_for_in((ROOT / page).read_text()) == COMPILED_FOR


@pytest.mark.parametrize("page", HAS_NOT_RUN)
def test_a_page_says_that_nothing_has_run_on_a_gpu_for_as_long_as_nothing_has(page: str) -> None:
    results = json.loads((ROOT / "benchmarks" / "results" / "gpu.json").read_text())
    has_run = not str(results.get("status", "")).startswith("not run")
    assert (HAS_NOT_RUN[page] in (ROOT / page).read_text()) != has_run
