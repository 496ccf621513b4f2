"""Triton's interpreter stands in for a GPU. It is chosen when a kernel is decorated, hence here."""

import os

import pytest
import structlog
import torch

from cluster.supervisor.cores import available_cores
from cluster.supervisor.devices import VISIBLE_DEVICES, visible_gpus
from kernels.cpu.team import TEAM
from tests.schedule import FilesInTheirOrder, is_long, put_in_order

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    if visible_gpus(os.environ):  # a card that torch cannot use: the fleets run on the CPU
        os.environ[VISIBLE_DEVICES] = ""
torch.set_num_threads(1)  # tests run beside each other; torch's own threads spin
TEAM.resize(available_cores())  # of a container's quota, not of the machine
# With every local variable, as a terminal shows it, a traceback takes half a second.
_LINES = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure([*structlog.get_config()["processors"][:-1], _LINES])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders them, and marks what `make quick` leaves out."""
    put_in_order(items)
    for item in filter(is_long, items):
        item.add_marker(pytest.mark.long)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FilesInTheirOrder:
    """Asked by xdist where tests are shared between processes."""
    config.option.loadscopereorder = False  # not by their number: by their place
    return FilesInTheirOrder(config, log)
