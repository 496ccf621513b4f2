"""Fleets that several test files share, and the reference that they are compared with."""

import pytest

from tests.fleet.reference import Reference
from tests.fleet.support import running_fleet

ENGINE = ("--max-context-tokens", "2048", "--kv-memory-bytes", str(400 * 2**20))


@pytest.fixture(scope="session")
def reference():
    """transformers on the very weights that the fleets load, in fp32."""
    return Reference()


@pytest.fixture(scope="session")
def pair_fleet(tmp_path_factory):
    """One prefill and one decode worker in fp32."""
    log_dir = tmp_path_factory.mktemp("pair")
    with running_fleet(log_dir, "--dtype", "float32", *ENGINE, num_workers=2) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def colocated_fleet(tmp_path_factory):
    """One decode worker that prefills itself, in fp32."""
    log_dir = tmp_path_factory.mktemp("colocated")
    arguments = ("--prefill", "0", "--dtype", "float32", *ENGINE)
    with running_fleet(log_dir, *arguments, num_workers=1) as fleet:
        yield fleet
