"""Router, planner, vocabulary and command line start where torch is not installed."""

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import cli
import cluster
import planner
import router

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    info.name
    for package in (router, planner, cluster, cli)
    for info in pkgutil.walk_packages(package.__path__, prefix=f"{package.__name__}.")
    if not info.name.endswith("__main__")
)
PROBE = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
heavy = {"torch", "triton", "safetensors", "nixl_cu12", "ray", "transformers"} & set(sys.modules)
raise SystemExit(f"imported: {heavy}" if heavy else 0)
"""


def test_no_module_of_router_planner_cluster_or_cli_imports_torch():
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *MODULES], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.skipif(
    "SPLITSERVE_ROUTER_PYTHON" not in os.environ, reason="make test prepares that environment"
)
def test_they_start_in_an_environment_without_torch():
    python = os.environ["SPLITSERVE_ROUTER_PYTHON"]
    absent = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert b"ModuleNotFoundError" in absent.stderr
    for arguments in (["-c", PROBE, *MODULES], ["-m", "cli", "version"], ["-m", "cli", "--help"]):
        done = subprocess.run([python, *arguments], cwd=ROOT, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
