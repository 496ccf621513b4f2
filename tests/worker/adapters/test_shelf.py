"""A worker's folder of adapters, with an engine that is played."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import shutil
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import worker.adapters.shelf as worker_shelf
from cluster.adapter import MAX_ADAPTERS, NOTHING_UNREAD, UnreadAdapters
from cluster.deadline import Clock
from cluster.errors import AdapterRefused, AdapterUnread
from cluster.models.adapters.files import AdapterFiles, adapter_folder, read_adapter
from cluster.models.card import DecoderConfig
from cluster.process.background import Background, cancel, nothing_needed
from engine.contract.adapters import AdapterNews, LoadAdapter, UnloadAdapter
from engine.contract.messages import Frame
from tests.adapter_files import save_adapter
from tests.cluster.models.adapters.test_files import CONFIG
from worker.adapters.lost import MAX_LOOKS
from worker.adapters.root_readings import FIRST_LIMIT_S
from worker.adapters.shelf import LOOK_INTERVAL_S, RETIRE_S, AdapterShelf
from worker.adapters.shelf_scan import Signature, scan, signature_of
from worker.adapters.storage import FolderStorage


class PlayedWorker:
    """An engine that has every adapter at once, unless it is told otherwise."""

    def __init__(
        self,
        root: Path,
        *,
        read_limit_s: float = 20.0,
        turn_s: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        """`turn_s`: that pass from one look at the clock to the next, where none is given."""
        self.told: list[LoadAdapter | UnloadAdapter] = []
        self.num_changes = 0
        self.failure, self.may_pass = "", True
        self.is_slow = False
        """It answers when `answer` is called."""
        self.slept: list[float] = []
        self.go_on = asyncio.Event()
        self.background = Background(nothing_needed)
        self.shelf = AdapterShelf(
            root,
            CONFIG,
            self.send,
            on_change=self.changed,
            background=self.background,
            clock=clock or partial(next, itertools.count(0.0, turn_s)),
            sleep=self.sleep,
            read_limit_s=read_limit_s,
        )

    def send(self, command: LoadAdapter | UnloadAdapter) -> None:
        self.told.append(command)
        if isinstance(command, LoadAdapter) and not self.is_slow:
            loop = asyncio.get_running_loop()
            loop.call_soon(self.answer, command.digest)

    def answer(self, digest: str) -> None:
        news = AdapterNews(digest, is_resident=True, failure=self.failure, may_pass=self.may_pass)
        self.shelf.heard(Frame(adapters=[news]))

    async def comes_to_be_asked(self, num_told: int) -> None:
        async with asyncio.timeout(10):
            while len(self.told) < num_told:
                await asyncio.sleep(0)

    def changed(self) -> None:
        self.num_changes += 1

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.go_on.wait()

    @property
    def offered(self) -> dict[str, str]:
        return {item.adapter.name: item.adapter.digest for item in self.shelf.offered.told}

    @property
    def unloaded(self) -> list[str]:
        return [each.digest for each in self.told if isinstance(each, UnloadAdapter)]

    async def look_twice(self) -> None:
        """As the watch does: what stays the same from one look to the next is read."""
        for _ in range(2):
            await self.shelf.look()

    async def later(self) -> None:
        """All that waited for some time goes on."""
        self.go_on.set()
        for _ in range(5):
            await asyncio.sleep(0)
        self.go_on.clear()


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[PlayedWorker]:
    save_adapter(tmp_path / "one", CONFIG, seed=1)
    played = PlayedWorker(tmp_path)
    await played.shelf.look()
    yield played
    await played.background.close()


async def test_what_lies_there_at_the_start_is_offered_at_once(worker: PlayedWorker) -> None:
    assert list(worker.offered) == ["one"]
    assert worker.num_changes >= 1


async def test_a_new_one_is_offered_once_its_files_stay_the_same(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    save_adapter(tmp_path / "two", CONFIG, seed=2)
    await worker.shelf.look()
    assert "two" not in worker.offered
    await worker.shelf.look()
    assert "two" in worker.offered


async def test_changed_files_give_the_name_to_the_new_version_and_the_old_one_leaves_later(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    old = worker.offered["one"]
    save_adapter(tmp_path / "one", CONFIG, seed=9)
    await worker.look_twice()
    assert worker.offered["one"] != old
    assert worker.unloaded == []
    await worker.later()
    assert worker.slept == [RETIRE_S]
    assert worker.unloaded == [old]


async def test_one_whose_folder_goes_leaves_discovery_before_the_engine(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    old = worker.offered["one"]
    shutil.rmtree(tmp_path / "one")
    await worker.look_twice()
    assert (worker.offered, worker.unloaded) == ({}, [])
    await worker.later()
    assert worker.unloaded == [old]


async def test_one_that_a_look_finds_in_the_midst_of_being_replaced_stays_until_the_new_one_is_read(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    old = worker.offered
    (tmp_path / "deep").mkdir()
    for seed in (2, 3):
        (tmp_path / "one").rename(tmp_path / "deep" / f"old-{seed}")
        await worker.shelf.look()
        assert worker.offered == old
        save_adapter(tmp_path / "one", CONFIG, seed=seed)
        await worker.shelf.look()
        assert worker.offered == old
        await worker.shelf.look()
        assert list(worker.offered) == ["one"] and worker.offered != old
        old = worker.offered


async def test_one_that_is_unloaded_while_a_look_does_not_find_it_stays_so(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    away = tmp_path / "deep" / "er"
    (tmp_path / "deep").mkdir()
    (tmp_path / "one").rename(away)
    await worker.shelf.look()
    assert worker.shelf.unload("one")
    away.rename(tmp_path / "one")
    touch(tmp_path / "one", at_ns=1)
    for _ in range(2):
        await worker.look_twice()
    assert worker.offered == {}


async def test_one_that_comes_back_in_time_is_not_let_go(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    assert worker.shelf.unload("one")
    await worker.shelf.load("other", "one")
    await worker.later()
    assert worker.unloaded == []
    assert list(worker.offered) == ["other"]


async def test_one_that_is_asked_for_again_is_not_let_go_while_the_engine_answers(
    worker: PlayedWorker,
) -> None:
    digest = worker.offered["one"]
    worker.shelf.unload("one")
    worker.is_slow = True
    loading = asyncio.create_task(worker.shelf.load("one", "one"))
    await worker.comes_to_be_asked(2)
    await worker.later()
    assert worker.unloaded == []
    worker.answer(digest)
    worker.go_on.set()  # also in the moment between the answer and the offer
    assert await loading == digest
    await worker.later()
    assert (worker.offered, worker.unloaded) == ({"one": digest}, [])


async def test_what_was_loaded_for_an_operator_who_has_left_is_let_go(worker: PlayedWorker) -> None:
    digest = worker.offered["one"]
    worker.shelf.unload("one")
    worker.is_slow = True
    loading = asyncio.create_task(worker.shelf.load("one", "one"))
    await worker.comes_to_be_asked(2)
    await cancel([loading])
    await worker.later()
    assert worker.unloaded == []
    worker.answer(digest)
    await worker.later()
    await worker.later()
    assert worker.unloaded == [digest]


async def test_one_that_is_unloaded_twice_is_kept_as_long_after_the_second_time(
    worker: PlayedWorker,
) -> None:
    digest = worker.offered["one"]
    worker.shelf.unload("one")
    await worker.shelf.load("one", "one")
    worker.shelf.unload("one")
    worker.shelf.offered.drop(digest)
    assert worker.unloaded == []
    worker.shelf.offered.drop(digest)
    assert worker.unloaded == [digest]


async def test_an_unloaded_one_stays_so_until_its_files_change(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    assert worker.shelf.unload("one")
    assert not worker.shelf.unload("one")
    await worker.look_twice()
    assert worker.offered == {}
    save_adapter(tmp_path / "one", CONFIG, seed=5)
    await worker.look_twice()
    assert list(worker.offered) == ["one"]


def touch(folder: Path, *, at_ns: int) -> None:
    """The same bytes, another time."""
    for file in folder.iterdir():
        os.utime(file, ns=(at_ns, at_ns))


@pytest.mark.parametrize("order", ["unload", "load"])
async def test_an_order_stands_while_the_bytes_of_its_folder_stay_the_same(
    worker: PlayedWorker, tmp_path: Path, order: str
) -> None:
    save_adapter(tmp_path / "deep" / "er", CONFIG, seed=3)
    if order == "unload":
        worker.shelf.unload("one")
    else:
        await worker.shelf.load("one", "deep/er")
    before = worker.offered
    touch(tmp_path / "one", at_ns=1)
    await worker.look_twice()
    assert worker.offered == before
    save_adapter(tmp_path / "one", CONFIG, seed=5)
    await worker.look_twice()
    assert worker.offered["one"] not in before.values()


async def test_the_same_bytes_in_other_files_change_nothing(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path / "one", tmp_path / "deep" / "copy")  # with their times
    shutil.rmtree(tmp_path / "one")
    (tmp_path / "deep" / "copy").rename(tmp_path / "one")
    before, num_changes, num_told = worker.offered, worker.num_changes, len(worker.told)
    await worker.look_twice()
    assert (worker.offered, worker.num_changes) == (before, num_changes)
    assert len(worker.told) == num_told


async def test_one_that_is_unloaded_before_the_first_look_stays_so(tmp_path: Path) -> None:
    save_adapter(tmp_path / "one", CONFIG)
    played = PlayedWorker(tmp_path)
    assert not played.shelf.unload("one")
    await played.look_twice()
    assert played.offered == {}


async def test_those_still_to_be_read_are_named_and_may_be_unloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "three", "two"):
        save_adapter(tmp_path / name, CONFIG)
    played, named = PlayedWorker(tmp_path), list[set[str]]()

    def read(root: Path, folder: Path, config: DecoderConfig) -> AdapterFiles:
        assert not played.shelf.unread.may_be_any
        named.append(set(played.shelf.unread.names))
        return read_adapter(root, folder, config)

    monkeypatch.setattr(worker_shelf, "read_adapter", read)
    looking = asyncio.create_task(played.shelf.look())
    while not named:
        await asyncio.sleep(0.001)
    assert not played.shelf.unload("two")  # its turn comes before the last is read
    await looking
    assert named == [{"one", "three", "two"}, {"three"}]
    assert sorted(played.offered) == ["one", "three"]
    assert played.shelf.unread == NOTHING_UNREAD


async def test_a_file_that_cannot_be_read_makes_its_own_name_unread_and_no_other(
    worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(root: Path, folder: Path, config: DecoderConfig) -> AdapterFiles:
        raise AdapterUnread("permission denied")

    monkeypatch.setattr(worker_shelf, "read_adapter", read)
    for name in ("one", "two"):  # the first is offered, and is not read again
        save_adapter(tmp_path / name, CONFIG, seed=5)
    for _ in range(2 * MAX_LOOKS):
        await worker.shelf.look()
        assert set(worker.shelf.unread.names) <= {"two"} and not worker.shelf.unread.may_be_any
    assert "two" in worker.shelf.unread
    assert not {"one", "tow"} & worker.shelf.unread.names and "one" in worker.offered
    num_changes = worker.num_changes
    assert not worker.shelf.unload("two")
    assert worker.shelf.unread == NOTHING_UNREAD, "an operator has taken it away"
    assert worker.num_changes == num_changes + 1, "routers hear of it at once"
    assert not worker.shelf.unload("two") and worker.num_changes == num_changes + 1


async def test_what_is_to_be_read_is_named_while_an_order_has_its_turn(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    save_adapter(tmp_path / "deep" / "er", CONFIG, seed=6)
    save_adapter(tmp_path / "two", CONFIG, seed=7)
    await worker.shelf.look()
    worker.is_slow = True
    order = asyncio.create_task(worker.shelf.load("ordered", "deep/er"))
    await worker.comes_to_be_asked(2)
    looking = asyncio.create_task(worker.shelf.look())
    async with asyncio.timeout(30):
        while "two" not in worker.shelf.unread:
            await asyncio.sleep(0.001)
    assert worker.shelf.unread.names == {"ordered", "two"}
    assert not worker.shelf.unload("two") and worker.shelf.unload("ordered")
    assert worker.shelf.unread == NOTHING_UNREAD
    worker.answer(worker.told[-1].digest)
    with pytest.raises(AdapterRefused, match="was unloaded before"):
        await order
    await looking


async def test_no_more_names_are_told_than_a_worker_may_offer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num = MAX_ADAPTERS + 9
    found = {f"n{index}": ((1, 1, 1),) * 2 for index in range(num)}

    def folder_of(root: Path, path: str) -> Path:
        raise MemoryError

    monkeypatch.setattr(worker_shelf, "scan", lambda root: found)
    monkeypatch.setattr(worker_shelf, "adapter_folder", folder_of)
    played = PlayedWorker(tmp_path)
    await played.shelf.look()
    assert len(played.shelf._lost._lost) == num
    assert len(played.shelf.unread.names) == MAX_ADAPTERS


async def test_any_name_may_come_until_the_folder_was_looked_at_and_no_longer_than_a_minute(
    tmp_path: Path,
) -> None:
    played = PlayedWorker(tmp_path / "later")
    await played.shelf.look()
    assert "two" in played.shelf.unread, "it is not known what lies there"
    late = PlayedWorker(tmp_path / "later", turn_s=FIRST_LIMIT_S)
    await late.shelf.look()
    assert late.shelf.unread == NOTHING_UNREAD and late.shelf.numbers().folder_unread_s > 0
    (tmp_path / "later").mkdir()
    await played.shelf.look()
    assert played.shelf.unread == NOTHING_UNREAD
    (tmp_path / "later").rmdir()
    await played.shelf.look()
    assert played.shelf.unread == NOTHING_UNREAD, "what lay there is known"


async def test_files_that_are_refused_leave_everything_as_it_was(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    before = worker.offered
    save_adapter(tmp_path / "bad", CONFIG, use_dora=True)
    save_adapter(tmp_path / "one", CONFIG, use_dora=True)
    await worker.look_twice()
    assert worker.offered == before
    with pytest.raises(AdapterRefused, match="use_dora"):
        await worker.shelf.load("bad", "bad")
    with pytest.raises(AdapterRefused):
        await worker.shelf.load("outside", "../one")


async def test_what_the_engine_cannot_have_is_not_offered(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    worker.failure, worker.may_pass = "there is room for 8", False
    save_adapter(tmp_path / "big", CONFIG, rank=16)
    with pytest.raises(AdapterRefused, match="room for 8"):
        await worker.shelf.load("big", "big")
    assert "big" not in worker.offered


async def test_what_the_engine_loses_is_offered_no_more(worker: PlayedWorker) -> None:
    digest = worker.offered["one"]
    news = AdapterNews(digest, is_resident=False, failure="the files have changed")
    worker.shelf.heard(Frame(adapters=[news]))
    assert worker.offered == {}


async def test_what_the_engine_has_lost_is_read_again(worker: PlayedWorker) -> None:
    before = worker.offered
    news = AdapterNews(before["one"], is_resident=False, failure="its files have given nothing")
    worker.shelf.heard(Frame(adapters=[news]))
    await worker.look_twice()
    assert worker.offered == before


async def test_what_was_ordered_and_is_lost_is_tried_again_ever_more_rarely(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    save_adapter(tmp_path / "deep" / "er", CONFIG, seed=3)
    digest = await worker.shelf.load("ordered", "deep/er")
    worker.failure = "its files have given nothing"
    worker.answer(digest)
    assert "ordered" not in worker.offered
    before = len(worker.told)
    for num_looks in (1, 2, 4):
        for _ in range(num_looks):
            await worker.shelf.look()
    assert len(worker.told) == before + 3
    worker.failure = ""
    for _ in range(8):
        await worker.shelf.look()
    assert worker.offered["ordered"] == digest
    told = len(worker.told)
    for _ in range(2 * MAX_LOOKS):
        await worker.shelf.look()
    assert len(worker.told) == told


@pytest.mark.parametrize(("turn_s", "num_back"), [(0.0, 5), (LOOK_INTERVAL_S, 1)])
async def test_storage_that_is_back_gives_all_that_was_lost_in_the_time_of_a_look(
    tmp_path: Path, turn_s: float, num_back: int
) -> None:
    for seed in range(6):
        save_adapter(tmp_path / f"lost-{seed}", CONFIG, seed=seed)
    worker = PlayedWorker(tmp_path, turn_s=turn_s)
    await worker.shelf.look()
    before = worker.offered
    assert len(before) == 6
    worker.failure = "its files have given nothing"
    for digest in before.values():
        worker.answer(digest)
    num_told = len(worker.told)
    await worker.shelf.look()
    assert len(worker.told) == num_told + 1 and worker.offered == {}
    worker.failure = ""
    await worker.shelf.look()
    assert len(worker.offered) == num_back
    for _ in range(6):
        await worker.shelf.look()
    assert worker.offered == before
    await worker.background.close()


@pytest.mark.parametrize("ends", ["unloaded", "ordered anew", "its own files"])
async def test_what_is_lost_is_not_tried_again_once_its_order_is_over(
    worker: PlayedWorker, tmp_path: Path, ends: str
) -> None:
    save_adapter(tmp_path / "deep" / "er", CONFIG, seed=3)
    save_adapter(tmp_path / "deep" / "other", CONFIG, seed=4)
    digest = await worker.shelf.load("ordered", "deep/er")
    worker.failure = "its files have given nothing"
    worker.answer(digest)
    worker.failure = ""
    if ends == "unloaded":
        assert not worker.shelf.unload("ordered")
    elif ends == "ordered anew":
        await worker.shelf.load("ordered", "deep/other")
    else:
        save_adapter(tmp_path / "ordered", CONFIG, seed=5)
        worker.failure, worker.may_pass = "still", False
        await worker.look_twice()
        worker.failure = ""
    after = worker.offered.get("ordered")
    for _ in range(4):
        await worker.shelf.look()
    assert worker.offered.get("ordered") == after != digest


async def test_storage_that_does_not_answer_holds_no_order_up_for_long(tmp_path: Path) -> None:
    save_adapter(tmp_path / "one", CONFIG)
    played = PlayedWorker(tmp_path, read_limit_s=0.0)
    await played.shelf.look()
    assert played.offered == {}
    with pytest.raises(AdapterUnread, match="could not be read within 0 s"):
        await played.shelf.load("one", "one")
    assert not played.shelf.unload("one")


async def test_a_mount_that_hangs_holds_an_order_for_no_longer_than_one_adapter_may_take(
    worker: PlayedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_back = threading.Event()

    def hanging(root: Path, path: str) -> Path:
        assert is_back.wait(60.0)
        return adapter_folder(root, path)

    monkeypatch.setattr(worker_shelf, "adapter_folder", hanging)
    worker.shelf._storage = FolderStorage(0.05)
    with pytest.raises(AdapterUnread):
        await worker.shelf.load("other", "one")
    assert worker.shelf.unload("one")
    is_back.set()


class HangingFolder:
    """Readings of the folder of one name hang until they are let go; others are as ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.name = name
        self.let_go = threading.Event()
        self.begun = asyncio.Event()
        self.num_read = 0
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(worker_shelf, "read_adapter", self.read)

    def read(self, root: Path, folder: Path, config: DecoderConfig) -> AdapterFiles:
        if folder.name == self.name:
            self.num_read += 1
            self._loop.call_soon_threadsafe(self.begun.set)
            assert self.let_go.wait(60.0)
        return read_adapter(root, folder, config)


async def test_one_whose_files_hang_is_read_once_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_adapter(tmp_path / "hangs", CONFIG, seed=1)
    folder = HangingFolder(monkeypatch, "hangs")
    played = PlayedWorker(tmp_path)
    played.shelf._storage = FolderStorage(0.05)
    await played.look_twice()
    await folder.begun.wait()
    played.shelf._storage._limit_s = 20.0
    for seed, name in enumerate("abcdef", start=2):
        save_adapter(tmp_path / name, CONFIG, seed=seed)
        for _ in range(MAX_LOOKS // 4):
            await played.shelf.look()
    assert (folder.num_read, sorted(played.offered)) == (1, list("abcdef"))
    folder.let_go.set()
    for thread in threading.enumerate():
        if thread.name == "adapter":
            thread.join(20.0)
    for _ in range(2 * MAX_LOOKS):
        await played.shelf.look()
    assert sorted(played.offered) == [*"abcdef", "hangs"]


async def test_taking_a_name_away_waits_for_no_reading_of_it(
    worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_adapter(tmp_path / "one", CONFIG, seed=2)
    await worker.shelf.look()
    folder = HangingFolder(monkeypatch, "one")
    look = asyncio.create_task(worker.shelf.look())
    await folder.begun.wait()
    waiting = asyncio.create_task(worker.shelf.load("other", "one"))
    await asyncio.sleep(0)
    assert worker.shelf.unload("one") and worker.shelf.unload("other")
    assert worker.offered == {}
    folder.let_go.set()
    await look
    with pytest.raises(AdapterRefused, match="other was unloaded before it was loaded"):
        await waiting
    assert (worker.offered, folder.num_read) == ({}, 1)
    touch(tmp_path / "one", at_ns=1)
    await worker.look_twice()
    assert worker.offered == {}
    save_adapter(tmp_path / "one", CONFIG, seed=3)
    await worker.look_twice()
    assert list(worker.offered) == ["one"]


async def test_what_is_unloaded_while_the_engine_takes_it_is_let_go_of_later(
    worker: PlayedWorker, tmp_path: Path
) -> None:
    save_adapter(tmp_path / "deep" / "er", CONFIG, seed=3)
    worker.is_slow = True
    loading = asyncio.create_task(worker.shelf.load("other", "deep/er"))
    await worker.comes_to_be_asked(2)
    assert worker.shelf.unload("other")
    digest = worker.told[-1].digest
    worker.answer(digest)
    with pytest.raises(AdapterRefused):
        await loading
    assert list(worker.offered) == ["one"]
    for _ in range(2):
        await worker.later()
    assert worker.unloaded == [digest]


async def test_storage_is_never_asked_on_the_event_loop(
    worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops, on_loop, off_loop = threading.current_thread(), set[str](), set[str]()

    def noting(place: Any, name: str) -> None:
        call = getattr(place, name)

        def noted(*args: Any, **options: Any) -> Any:
            (on_loop if threading.current_thread() is loops else off_loop).add(name)
            return call(*args, **options)

        monkeypatch.setattr(place, name, noted)

    save_adapter(tmp_path / "two", CONFIG, seed=2)
    save_adapter(tmp_path / "deep" / "er", CONFIG, seed=3)
    for place, name in ((os, "stat"), (os, "scandir"), (Path, "resolve"), (Path, "open")):
        noting(place, name)
    await worker.look_twice()
    await worker.shelf.load("ordered", "deep/er")
    worker.shelf.unload("one")
    await worker.look_twice()
    assert sorted(worker.offered) == ["ordered", "two"]
    assert (on_loop, off_loop) == (set(), {"stat", "scandir", "resolve", "open"})


class FailingStorage:
    """Fails in one way until it is told otherwise."""

    def __init__(self, failure: Exception) -> None:
        self.failure: Exception | None = failure
        self.num_read = 0

    def read(self, root: Path, folder: Path, config: DecoderConfig) -> AdapterFiles:
        self.num_read += 1
        if self.failure is not None:
            raise self.failure
        return read_adapter(root, folder, config)


@pytest.mark.parametrize("failure", [AdapterUnread("stale handle"), MemoryError(), TimeoutError()])
async def test_one_whose_first_reading_fails_for_a_passing_cause_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    save_adapter(tmp_path / "one", CONFIG)
    storage = FailingStorage(failure)
    monkeypatch.setattr(worker_shelf, "read_adapter", storage.read)
    played = PlayedWorker(tmp_path)
    assert played.shelf.unread == UnreadAdapters(may_be_any=True), "it is not known what is there"
    for num_read, num_looks in enumerate((1, 1, 2, 4, 8), start=1):
        for _ in range(num_looks):
            await played.shelf.look()
        assert (storage.num_read, played.offered) == (num_read, {})
    assert played.shelf.unread == UnreadAdapters(frozenset({"one"}))
    storage.failure = None
    for _ in range(2 * MAX_LOOKS):
        await played.shelf.look()
    assert played.shelf.unread == NOTHING_UNREAD
    assert (storage.num_read, list(played.offered)) == (6, ["one"])


async def test_one_that_the_engine_could_not_read_at_first_is_tried_again(tmp_path: Path) -> None:
    save_adapter(tmp_path / "one", CONFIG)
    played = PlayedWorker(tmp_path)
    played.failure = "its files have given nothing"
    await played.look_twice()
    played.failure = ""
    await played.look_twice()
    assert list(played.offered) == ["one"]


@pytest.mark.parametrize("is_refused_at_first", [True, False])
async def test_what_is_wrong_with_one_is_not_looked_at_again_until_its_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused_at_first: bool
) -> None:
    save_adapter(tmp_path / "one", CONFIG)
    refusal = AdapterRefused("use_dora")
    storage = FailingStorage(refusal if is_refused_at_first else AdapterUnread("stale handle"))
    monkeypatch.setattr(worker_shelf, "read_adapter", storage.read)
    played = PlayedWorker(tmp_path)
    await played.look_twice()
    storage.failure = refusal
    for _ in range(MAX_LOOKS):
        await played.shelf.look()
    num_read = storage.num_read
    for _ in range(2 * MAX_LOOKS):
        await played.shelf.look()
    assert storage.num_read == num_read
    storage.failure = None
    save_adapter(tmp_path / "one", CONFIG, seed=4)
    await played.look_twice()
    assert list(played.offered) == ["one"]


async def test_an_ordered_one_that_was_lost_and_is_wrong_by_now_is_given_up(
    worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_adapter(tmp_path / "deep" / "er", CONFIG, seed=6)
    digest = await worker.shelf.load("ordered", "deep/er")
    storage = FailingStorage(AdapterUnread("stale handle"))
    monkeypatch.setattr(worker_shelf, "read_adapter", storage.read)
    worker.shelf.heard(
        Frame(adapters=[AdapterNews(digest, is_resident=False, failure="gone", may_pass=True)])
    )
    await worker.look_twice()
    assert worker.shelf.unread == UnreadAdapters(frozenset({"ordered"}))
    storage.failure = AdapterRefused("use_dora")
    for _ in range(MAX_LOOKS):
        await worker.shelf.look()
    num_read = storage.num_read
    for _ in range(2 * MAX_LOOKS):
        assert worker.shelf.unread == NOTHING_UNREAD
        await worker.shelf.look()
    assert storage.num_read == num_read
    storage.failure = None
    assert await worker.shelf.load("ordered", "deep/er") == digest


async def test_an_unloaded_one_is_not_named_while_nobody_knows_that_its_bytes_are_others(
    worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.shelf.unload("one")
    storage = FailingStorage(AdapterUnread("stale handle"))

    def read(root: Path, folder: Path, config: DecoderConfig) -> AdapterFiles:
        assert worker.shelf.unread == NOTHING_UNREAD, "it is being read"
        return storage.read(root, folder, config)

    monkeypatch.setattr(worker_shelf, "read_adapter", read)
    touch(tmp_path / "one", at_ns=1)
    for num_looks in (2, 8):
        for _ in range(num_looks):
            await worker.shelf.look()
            assert worker.shelf.unread == NOTHING_UNREAD
        storage.failure = None
    assert storage.num_read > 1 and worker.offered == {}
    save_adapter(tmp_path / "one", CONFIG, seed=8)
    worker.is_slow, num_told = True, len(worker.told)
    await worker.shelf.look()
    looking = asyncio.create_task(worker.shelf.look())
    await worker.comes_to_be_asked(num_told + 1)
    assert worker.shelf.unread == UnreadAdapters(frozenset({"one"})), "they are"
    worker.answer(worker.told[-1].digest)
    await looking
    assert list(worker.offered) == ["one"]


async def test_one_that_is_loaded_after_it_was_unloaded_is_named_meanwhile(
    worker: PlayedWorker,
) -> None:
    worker.shelf.unload("one")
    worker.is_slow = True
    loading = asyncio.create_task(worker.shelf.load("one", "one"))
    await worker.comes_to_be_asked(2)
    assert worker.shelf.unread == UnreadAdapters(frozenset({"one"}))
    worker.answer(worker.told[-1].digest)
    await loading


async def test_one_that_breaks_what_looks_at_it_hides_no_other(
    worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(root: Path, folder: Path, config: DecoderConfig) -> AdapterFiles:
        if folder.name == "a":
            raise RecursionError
        return read_adapter(root, folder, config)

    monkeypatch.setattr(worker_shelf, "read_adapter", read)
    for seed, name in enumerate(("a", "b")):
        save_adapter(tmp_path / name, CONFIG, seed=7 + seed)
    await worker.look_twice()
    assert sorted(worker.offered) == ["b", "one"]


async def test_a_root_that_is_not_there_yet_is_looked_for_again(tmp_path: Path) -> None:
    played = PlayedWorker(tmp_path / "later")
    await played.shelf.look()
    assert played.offered == {}
    save_adapter(tmp_path / "later" / "one", CONFIG)
    await played.shelf.look()
    assert list(played.offered) == ["one"]


class Mount:
    """A look at the folder that answers when `is_back` is set."""

    def __init__(self) -> None:
        self.is_back = threading.Event()
        self.num_asked = 0

    def scan(self, root: Path) -> dict[str, Signature | None]:
        self.num_asked += 1
        assert self.is_back.wait(60.0)
        return scan(root)


async def test_a_mount_that_hangs_is_asked_once_and_taken_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_adapter(tmp_path / "one", CONFIG)
    mount = Mount()
    monkeypatch.setattr(worker_shelf, "scan", mount.scan)
    played = PlayedWorker(tmp_path, read_limit_s=0.05)
    for _ in range(12):
        await played.shelf.look()
    assert (mount.num_asked, played.offered) == (1, {})
    mount.is_back.set()
    monkeypatch.setattr(worker_shelf, "scan", lambda root: {"one": signature_of(root / "one")})
    played.shelf._storage = played.shelf._root_storage = FolderStorage(20.0)
    await played.shelf.look()
    assert list(played.offered) == ["one"]


async def test_an_order_waits_for_one_adapter_of_a_look_and_not_for_all(tmp_path: Path) -> None:
    for seed, name in enumerate("abc"):
        save_adapter(tmp_path / name, CONFIG, seed=seed)
    save_adapter(tmp_path / "deep" / "er", CONFIG, seed=8)
    played = PlayedWorker(tmp_path)
    played.is_slow = True
    look = asyncio.create_task(played.shelf.look())
    await played.comes_to_be_asked(1)
    ordered = asyncio.create_task(played.shelf.load("b", "deep/er"))
    for num_told in (2, 3):
        for _ in range(5):
            await asyncio.sleep(0)
        played.answer(played.told[-1].digest)
        await played.comes_to_be_asked(num_told)
    digest = await ordered
    assert (list(played.offered), played.offered["b"]) == (["a", "b"], digest)
    played.answer(played.told[-1].digest)
    await look
    assert sorted(played.offered) == ["a", "b", "c"]
    assert played.offered["b"] == digest, "the order is newer than what this look has seen"


async def test_what_was_ordered_before_the_first_look_stands(tmp_path: Path) -> None:
    save_adapter(tmp_path / "one", CONFIG, seed=1)
    save_adapter(tmp_path / "deep" / "er", CONFIG, seed=8)
    played = PlayedWorker(tmp_path)
    digest = await played.shelf.load("one", "deep/er")
    await played.look_twice()
    assert played.offered == {"one": digest}
    save_adapter(tmp_path / "one", CONFIG, seed=2)
    await played.look_twice()
    assert played.offered["one"] != digest


async def test_a_folder_that_cannot_be_looked_at_now_is_not_taken_for_gone(
    worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = worker.offered
    monkeypatch.setattr(worker_shelf, "scan", lambda root: {"one": None})
    await worker.look_twice()
    assert worker.offered == before
    monkeypatch.setattr(worker_shelf, "scan", scan)
    num_told = len(worker.told)
    await worker.look_twice()
    assert (worker.offered, len(worker.told)) == (before, num_told)


class HalfSeenFolder:
    """Looks at the folder cannot tell what the files of one name are; or do not find it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.name = name
        self.is_hidden, self.is_away = True, False
        monkeypatch.setattr(worker_shelf, "scan", self.scan)

    def scan(self, root: Path) -> dict[str, Signature | None]:
        found = scan(root)
        if self.is_away:
            del found[self.name]
        elif self.is_hidden:
            found[self.name] = None
        return found


async def test_one_whose_files_cannot_be_looked_at_is_named_until_it_is_offered(
    worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = HalfSeenFolder(monkeypatch, "two")
    save_adapter(tmp_path / "two", CONFIG, seed=2)
    for _ in range(5):
        await worker.shelf.look()
        assert worker.shelf.unread == UnreadAdapters(frozenset({"two"}))
    folder.is_hidden = False
    await worker.shelf.look()
    assert worker.shelf.unread == UnreadAdapters(frozenset({"two"}))
    await worker.shelf.look()
    assert "two" in worker.offered and worker.shelf.unread == NOTHING_UNREAD
    folder.is_hidden = True
    await worker.look_twice()
    assert "two" in worker.offered and worker.shelf.unread == NOTHING_UNREAD


@pytest.mark.parametrize("order", ["unload", "load"])
@pytest.mark.parametrize("given", ["before the first look", "later", "and not found once"])
async def test_an_order_about_one_whose_files_cannot_be_looked_at_stands_when_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, given: str
) -> None:
    save_adapter(tmp_path / "two", CONFIG, seed=2)
    save_adapter(tmp_path / "deep" / "er", CONFIG, seed=3)
    folder, worker = HalfSeenFolder(monkeypatch, "two"), PlayedWorker(tmp_path)
    if given != "before the first look":
        await worker.look_twice()
    if order == "unload":
        assert not worker.shelf.unload("two")
    else:
        await worker.shelf.load("two", "deep/er")
    offered = worker.offered
    await worker.look_twice()
    folder.is_away = given == "and not found once"
    await worker.shelf.look()
    assert worker.shelf.unread == NOTHING_UNREAD
    folder.is_hidden = folder.is_away = False
    for _ in range(3):
        await worker.shelf.look()
        assert worker.offered == offered and worker.shelf.unread == NOTHING_UNREAD
    save_adapter(tmp_path / "two", CONFIG, seed=4)
    await worker.look_twice()
    assert "two" in worker.offered and worker.offered != offered


async def test_an_order_about_one_that_was_hidden_and_is_gone_is_not_about_what_comes_later(
    worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = HalfSeenFolder(monkeypatch, "two")
    save_adapter(tmp_path / "two", CONFIG, seed=2)
    await worker.shelf.look()
    assert not worker.shelf.unload("two")
    folder.is_away = True
    await worker.look_twice()
    folder.is_hidden = folder.is_away = False
    await worker.look_twice()
    assert "two" in worker.offered


def saved_at_another_time(folder: Path, other: Path, *, seed: int) -> Path:
    """Another adapter, with the sizes and times of `other`'s contents, as tar leaves it."""
    names = ("adapter_config.json", "adapter_model.safetensors")
    times = [os.stat(other / name) for name in names]
    changed_ns = {time.st_ctime_ns for time in times}
    while True:  # a clock of files is a coarse one
        save_adapter(folder, CONFIG, seed=seed)
        for name, time in zip(names, times, strict=True):
            os.utime(folder / name, ns=(time.st_mtime_ns, time.st_mtime_ns))
        if not changed_ns & {os.stat(folder / name).st_ctime_ns for name in names}:
            return folder


async def test_a_swap_of_files_of_one_size_and_time_is_seen(
    worker: PlayedWorker, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old = worker.offered["one"]
    other = saved_at_another_time(
        tmp_path_factory.mktemp("other") / "one", tmp_path / "one", seed=2
    )
    (tmp_path / "one").rename(other.parent / "before")
    other.rename(tmp_path / "one")
    await worker.look_twice()
    assert worker.offered["one"] not in ("", old)


async def test_a_time_of_status_that_always_changes_has_files_read_once_and_ends_no_order(
    worker: PlayedWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_adapter(tmp_path / "two", CONFIG, seed=2)
    digest = await worker.shelf.load("one", "two")
    times, num_read = itertools.count(1), 0

    def look(root: Path) -> dict[str, Signature | None]:
        found = scan(root)
        return {
            name: sign and tuple((size, ns, next(times)) for size, ns, _ in sign)
            for name, sign in found.items()
        }

    def read(*args: Any) -> Any:
        nonlocal num_read
        num_read += 1
        return looked_at(*args)

    looked_at = worker_shelf._looked_at
    monkeypatch.setattr(worker_shelf, "scan", look)
    monkeypatch.setattr(worker_shelf, "_looked_at", read)
    for _ in range(100):
        await worker.shelf.look()
    assert worker.offered["one"] == digest and "two" in worker.offered
    assert num_read <= 4


async def test_a_mount_that_makes_that_time_up_and_is_slow_has_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, name in enumerate("abc"):
        save_adapter(tmp_path / name, CONFIG, seed=seed)
    times, now_s, ends_s = itertools.count(1), 0.0, [0.0]

    def look(root: Path) -> dict[str, Signature | None]:
        return {
            name: sign and tuple((size, ns, next(times)) for size, ns, _ in sign)
            for name, sign in scan(root).items()
        }

    def read(*args: Any) -> Any:
        nonlocal now_s
        if now_s > ends_s[-1]:
            pauses_s.append(now_s - ends_s[-1])
        now_s += 10.0
        ends_s.append(now_s)
        return looked_at(*args)

    looked_at, pauses_s = worker_shelf._looked_at, list[float]()
    monkeypatch.setattr(worker_shelf, "scan", look)
    monkeypatch.setattr(worker_shelf, "_looked_at", read)
    worker = PlayedWorker(tmp_path, clock=lambda: now_s)
    for _ in range(1000):
        await worker.shelf.look()
        now_s += LOOK_INTERVAL_S
    first, *others = pauses_s
    assert first < 10.0 and len(others) >= 2 and min(others) >= 300.0
    assert len(ends_s) == 1 + 3 * (1 + len(pauses_s))


async def test_an_adapter_whose_storage_fails_at_any_call_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_adapter(tmp_path / "one", CONFIG, seed=1)
    played = PlayedWorker(tmp_path)

    def fails(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(worker_shelf, "signature_of", fails)
        await played.shelf.look()
        assert not played.offered
        with pytest.raises(AdapterUnread, match="cannot be read"):
            await played.shelf.load("one", "one")
    await played.look_twice()
    assert list(played.offered) == ["one"]
    await played.background.close()
