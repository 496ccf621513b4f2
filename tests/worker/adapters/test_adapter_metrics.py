"""What a worker's Prometheus page says of its adapters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import worker.adapters.shelf as worker_shelf
from cluster.errors import AdapterUnread
from engine.contract.adapters import AdapterNews
from engine.contract.messages import Frame
from tests.adapter_files import save_adapter
from tests.cluster.models.adapters.test_files import CONFIG
from tests.worker.adapters.test_shelf import FailingStorage, PlayedWorker
from worker.adapters.adapter_metrics import AdapterMetrics


class Page:
    """A worker's adapters, and what a scrape finds of them."""

    def __init__(self, worker: PlayedWorker) -> None:
        self.worker = worker
        self._registry = CollectorRegistry()
        self._registry.register(AdapterMetrics(worker.shelf.numbers))

    def value(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"splitserve_worker_adapter{name}", labels)

    @property
    def states(self) -> tuple[float | None, ...]:
        return tuple(self.value("s", state=state) for state in ("offered", "resident"))

    @property
    def events(self) -> dict[str, float | None]:
        names = ("read", "evicted", "withdrawn", "refused", "unread", "lost")
        found = {name: self.value("_events_total", event=name) for name in names}
        return {name: count for name, count in found.items() if count}

    def hear(
        self, digest: str, *, is_resident: bool, failure: str = "", num_bytes: int = 0
    ) -> None:
        news = AdapterNews(digest, is_resident=is_resident, failure=failure, num_bytes=num_bytes)
        self.worker.shelf.heard(Frame(adapters=[news]))


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    save_adapter(tmp_path / "one", CONFIG, seed=1)
    played = PlayedWorker(tmp_path)
    page = Page(played)
    await played.shelf.look()
    yield page
    await played.background.close()


async def test_what_is_offered_and_resident_is_shown_with_its_memory(page: Page) -> None:
    assert (page.states, page.events) == ((1, 1), {"read": 1})
    digest = page.worker.offered["one"]
    page.hear(digest, is_resident=True, num_bytes=1600)  # said again
    assert (page.value("_bytes"), page.events) == (1600, {"read": 1})


async def test_one_that_gives_way_and_comes_back_is_counted_both_times(page: Page) -> None:
    digest = page.worker.offered["one"]
    page.hear(digest, is_resident=False)
    assert (page.states, page.value("_bytes")) == ((1, 0), 0)
    page.hear(digest, is_resident=True, num_bytes=800)
    assert (page.states, page.value("_bytes")) == ((1, 1), 800)
    assert page.events == {"read": 2, "evicted": 1}


async def test_a_new_version_is_read_beside_the_old_one_which_is_then_withdrawn(
    page: Page, tmp_path: Path
) -> None:
    save_adapter(tmp_path / "one", CONFIG, seed=9)
    await page.worker.look_twice()
    assert page.states == (1, 2)
    await page.worker.later()
    assert (page.states, page.events) == ((1, 1), {"read": 2, "withdrawn": 1})


async def test_files_that_cannot_be_used_and_one_that_is_lost_are_counted(
    page: Page, tmp_path: Path
) -> None:
    save_adapter(tmp_path / "odd", CONFIG, seed=2)
    (tmp_path / "odd" / "adapter_config.json").write_text("{}")
    await page.worker.look_twice()
    assert page.events == {"read": 1, "refused": 1}
    page.hear(page.worker.offered["one"], is_resident=False, failure="its files have changed")
    assert (page.states, page.events["lost"]) == ((0, 0), 1)


async def test_a_folder_that_cannot_be_read_is_shown_with_how_long(
    page: Page, tmp_path: Path
) -> None:
    now_s = 0.0
    page.worker.shelf._root_readings._clock = lambda: now_s
    assert page.value("_folder_unread_seconds") == 0.0
    away = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-away"))
    await page.worker.shelf.look()
    now_s = 7.0
    assert page.value("_folder_unread_seconds") == 7.0
    away.rename(tmp_path)
    await page.worker.shelf.look()
    assert page.value("_folder_unread_seconds") == 0.0


async def test_files_that_cannot_be_read_this_time_are_not_refused(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_adapter(tmp_path / "far", CONFIG, seed=2)
    storage = FailingStorage(AdapterUnread("stale handle"))
    monkeypatch.setattr(worker_shelf, "read_adapter", storage.read)
    await page.worker.look_twice()
    await page.worker.look_twice()
    assert page.events == {"read": 1, "unread": 2}
