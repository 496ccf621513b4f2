"""Triton's interpreter stands in for a GPU. It is chosen when a kernel is decorated, hence here."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import torch

from cluster.process.own_cores import available_cores
from kernels.cpu.team import TEAM
from tests.certificates import read_certificates_once
from tests.cli.run_cli import NO_CONTEXTS
from tests.grpc_servers_last import cancel_grpc_servers_last
from tests.hidden_gpus import hide_gpus
from tests.patience import give_time
from tests.redis_server import RedisServer
from tests.schedule import FilesInTheirOrder, is_long, put_in_order

gc.disable()  # until all modules are there: a fifth of their imports' time is the collector's
torch.set_num_threads(1)  # tests run beside each other; torch's own threads spin
read_certificates_once()
cancel_grpc_servers_last()
TEAM.resize(available_cores())  # of a container's quota, not of the machine
# With every local variable, as a terminal shows it, a traceback takes half a second.
_LINES = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure([*structlog.get_config()["processors"][:-1], _LINES])


def pytest_configure(config: pytest.Config) -> None:
    """Before any kernel is decorated. Whoever runs the tests may have a current context."""
    os.environ["SPLITSERVE_CONTEXTS"] = NO_CONTEXTS
    hide_gpus(os.environ, config.option.markexpr)
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Orders them, gives them time, and marks what `make quick` leaves out."""
    put_in_order(items)
    default_s = float(config.getini("timeout"))
    for item in items:
        give_time(item, default_s)
    for item in filter(is_long, items):
        item.add_marker(pytest.mark.long)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """What all the modules are made of stays: a collector that looks at it takes half a second, and
    tests call it by the hundred."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FilesInTheirOrder:
    """Asked by xdist where tests are shared between processes."""
    config.option.loadscopereorder = False  # not by their number: by their place
    return FilesInTheirOrder(config, log)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A real one, for this test alone."""
    with RedisServer(tmp_path) as server:
        yield server


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Nobody looks for cycles: what is freed is freed by whoever let go of it, and what is timed is
    the test's own work."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
