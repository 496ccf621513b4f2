"""A worker that starts while its adapters' storage stands still, over a scripted engine."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import worker.adapters.shelf as worker_shelf
import worker.open_shelf as opened
from cluster.engine_options import EngineOptions
from cluster.identity import Role
from tests.worker.worker_bench import noting_router, options_for, running_worker
from worker.adapters.shelf_scan import Signature


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch):
    """Set: it answers."""
    is_back = threading.Event()

    def scan(root: Path) -> dict[str, Signature | None]:
        assert is_back.wait(60.0)
        return {}

    monkeypatch.setattr(worker_shelf, "scan", scan)
    yield is_back
    is_back.set()


@pytest.mark.parametrize("role", list(Role))
async def test_a_worker_is_ready_and_joins_while_the_storage_of_adapters_stands_still(
    role, mount, tmp_path, monkeypatch
):
    monkeypatch.setattr(opened, "FIRST_LOOK_S", 0)
    engine = EngineOptions(block_size_tokens=4, adapters=str(tmp_path))
    async with running_worker(options_for(role, engine=engine)) as worker:
        await worker.ready()
        assert worker.process.why_not_ready() is None
    async with (
        noting_router() as router,
        running_worker(options_for(role, router.address, engine=engine)) as worker,
    ):
        await worker.ready()
        await router.until(lambda: router.beats)
        assert not (mount.is_set() or router.beats[-1].adapters)
        told = [router.joining[-1].beat, router.beats[-1]]
        assert all(each.unread_adapters.may_be_any for each in told), "nobody knows what is there"
        mount.set()
        await router.until(lambda: not router.beats[-1].unread_adapters.may_be_any)


async def test_a_worker_whose_folder_of_adapters_is_not_there_starts(tmp_path):
    engine = EngineOptions(block_size_tokens=4, adapters=str(tmp_path / "not" / "yet"))
    async with (
        noting_router() as router,
        running_worker(options_for(Role.DECODE, router.address, engine=engine)) as worker,
    ):
        await worker.ready()
        await router.until(lambda: router.beats)
