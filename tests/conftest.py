"""Triton's interpreter stands in for a GPU. It is chosen when a kernel is decorated, hence here."""

import os

import pytest
import torch
from xdist.scheduler import LoadScopeScheduling

from cluster.supervisor.cores import available_cores
from cluster.supervisor.devices import VISIBLE_DEVICES, visible_gpus
from kernels.cpu.team import TEAM

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    if visible_gpus(os.environ):  # a card that torch cannot use: the fleets run on the CPU
        os.environ[VISIBLE_DEVICES] = ""
torch.set_num_threads(1)  # tests run beside each other; torch's own threads spin
TEAM.resize(available_cores())  # of a container's quota, not of the machine


LONG = (
    "tests/kernels/triton/",
    "tests/kvtransfer/test_nixl_transport.py",
    "tests/router/text_worker/test_text_workers.py",
    "tests/worker/engine/test_vitals.py",
    "tests/worker/test_supervised_worker.py",
    "tests/worker/test_worker_children.py",
)
"""What `make quick` leaves out, beside fleets and compilers: half of the rest's time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what `make quick` leaves out."""
    for item in items:
        if item.nodeid.startswith(LONG):
            item.add_marker(pytest.mark.long)


class OneFleetAtATime(LoadScopeScheduling):
    """All tests with fleets go to one of the processes, one after the other; the others anywhere.

    What xdist itself has for this, its groups, does nothing under pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "fleet" if nodeid.startswith("tests/fleet/") else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> OneFleetAtATime:
    """Asked by xdist where tests are shared between processes."""
    return OneFleetAtATime(config, log)
