"""Adapters that are read beside the steps: from files that do not answer, and that are no use."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import engine.model.adapters.reading as reading
from cluster.adapter import MAX_LORA_RANK
from cluster.errors import AdapterRefused, AdapterUnread
from cluster.models.adapters import tensor_file
from cluster.models.adapters.files import open_adapter, read_adapter
from cluster.models.adapters.plain_file import Progressed
from cluster.models.adapters.targets import QKV, site_modules
from cluster.models.model_split import ModelSplit
from cluster.sharding import Rank
from engine.model.adapters.bank import AdapterBank, AdapterRoom
from engine.model.adapters.permit import Permit
from engine.model.adapters.rank_adapters import MAX_LEFT, STALL_S, RankAdapters, Staged
from engine.model.adapters.reading import read_into
from engine.model.adapters.words import SettleAdapter
from engine.runner.replica_adapters import GroupAdapters
from tests.adapter_files import save_adapter, word_of
from tests.cluster.models.adapters.test_files import CONFIG

LIMIT_S = 20.0


def said(rank: RankAdapters) -> str:
    assert rank.failure is not None
    return rank.failure.message


class SlowFiles:
    """Each reading waits until it is let go, and is in `threads` from its beginning."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let_go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.threads: list[threading.Thread] = []
        self.progressed: list[Progressed] = []
        monkeypatch.setattr(reading, "open_adapter", self.open)

    def open(self, *args: Any, progressed: Progressed) -> Any:
        self.threads.append(threading.current_thread())
        self.progressed.append(progressed)
        self.begun.release()
        assert self.let_go.wait(LIMIT_S)
        return open_adapter(*args, progressed=progressed)

    def end(self) -> None:
        self.let_go.set()
        for thread in self.threads:
            thread.join(LIMIT_S)
            assert not thread.is_alive()


class Bench:
    """A bank, its rank, and one adapter in the folder `a`."""

    def __init__(self, root: Path) -> None:
        self.now_s = 0.0
        self.root, self.folder = root, save_adapter(root / "a", CONFIG)
        self.word = word_of(self.folder, CONFIG, slot=1, start=4)
        room = AdapterRoom(num_lora_ranks=16, num_slots=3)
        split = ModelSplit(config=CONFIG)
        self.bank = AdapterBank(split, room, dtype=torch.float32, device=torch.device("cpu"))
        self.least = Staged.READ
        self.rank = RankAdapters(self.bank, self.agree, clock=lambda: self.now_s)

    def agree(self, number: int) -> int:
        return min(number, self.least)

    def stage(self) -> None:
        assert self.rank.follow(self.word) is Staged.READING

    def settle(self) -> Staged:
        return self.rank.follow(SettleAdapter())

    def look_for(self, seconds: float) -> Staged:
        """Once a second, until it is no longer under way."""
        for _ in range(int(seconds)):
            self.now_s += 1.0
            if (outcome := self.settle()) is not Staged.READING:
                return outcome
        return Staged.READING

    def settled(self) -> Staged:
        """Once the thread has come to an end."""
        for thread in threading.enumerate():
            if thread.name == "adapter":
                thread.join(LIMIT_S)
        return self.settle()

    @property
    def is_empty(self) -> bool:
        layers = [layer.qkv for layer in self.bank.layers if layer.qkv is not None]
        return not any(bool(part.down.any()) for site in layers for part in site.parts)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_one_that_is_read_is_placed(bench: Bench) -> None:
    bench.stage()
    assert bench.settled() is Staged.READ
    assert not bench.is_empty and bench.rank.failure is None
    site = bench.bank.layers[0].qkv
    assert site is not None and site.starts.tolist() == [0, 4, 0]
    assert site.parts[0].lora_ranks.tolist() == [0, 8, 0]


def test_a_rank_beyond_what_kernels_have_room_for_is_never_placed(bench: Bench) -> None:
    site = bench.bank.layers[0].qkv
    assert site is not None and site.max_lora_rank == MAX_LORA_RANK
    module = site_modules(0, QKV)[0]
    bench.bank.place(1, 0, {module: MAX_LORA_RANK})
    with pytest.raises(AssertionError):
        bench.bank.place(1, 0, {module: MAX_LORA_RANK + 1})
    assert site.parts[0].lora_ranks.tolist() == [0, MAX_LORA_RANK, 0]


def test_files_that_do_not_answer_are_given_up_and_write_nothing_when_they_do(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SlowFiles(monkeypatch)
    bench.stage()
    assert files.begun.acquire(timeout=LIMIT_S)
    assert bench.look_for(STALL_S) is Staged.READING
    assert bench.look_for(1) is Staged.FAILED
    assert said(bench.rank) == "the adapter's files have given nothing for 30 s"
    files.end()
    assert bench.is_empty


def test_what_is_wrong_at_one_rank_is_refused_for_good_at_all(bench: Bench) -> None:
    group = GroupAdapters(bench.rank, bench.bank, lambda body: None, lambda error: error)
    bench.stage()
    bench.least = Staged.REFUSED
    assert bench.settled() is Staged.REFUSED
    assert isinstance(group.failure, AdapterRefused)
    bench.stage()
    bench.least = Staged.FAILED
    assert bench.settled() is Staged.FAILED
    assert isinstance(group.failure, AdapterUnread)


def test_what_is_wrong_here_is_told_to_others_as_such(bench: Bench) -> None:
    bench.word = msgspec.structs.replace(bench.word, folder=str(bench.root / "nowhere"))
    bench.stage()
    assert bench.settled() is Staged.REFUSED
    assert isinstance(bench.rank.failure, AdapterRefused)


def test_what_another_rank_could_not_read_is_given_up_without_a_wait(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SlowFiles(monkeypatch)
    bench.stage()
    assert files.begun.acquire(timeout=LIMIT_S)
    bench.least = Staged.FAILED
    assert bench.settle() is Staged.FAILED
    assert bench.rank.failure is None  # nothing is amiss here
    files.end()
    assert bench.is_empty


def test_what_giving_up_does_to_a_reading_is_not_why_it_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may hear of it before the conductor asks why."""
    files, take_back = SlowFiles(monkeypatch), Permit.take_back

    def heard_at_once(permit: Permit) -> None:
        take_back(permit)
        files.end()

    monkeypatch.setattr(Permit, "take_back", heard_at_once)
    group = GroupAdapters(bench.rank, bench.bank, lambda body: None, lambda error: error)
    bench.stage()
    assert files.begun.acquire(timeout=LIMIT_S)
    bench.least = Staged.FAILED
    assert group.follow(SettleAdapter()) is Staged.FAILED
    assert isinstance(group.failure, AdapterUnread)
    assert "another rank could not read it" in group.failure.message


def test_a_rank_without_a_thread_to_read_in_fails_the_adapter_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bytes] = []
    group = GroupAdapters(bench.rank, bench.bank, told.append, lambda error: error)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(2 * MAX_LEFT):
            assert group.follow(bench.word) is Staged.READING
            assert group.follow(SettleAdapter()) is Staged.FAILED
            assert isinstance(group.failure, AdapterUnread)
            assert "no thread to read it in (can't start new thread)" in said(bench.rank)
    assert len(told) == 4 * MAX_LEFT and bench.is_empty
    bench.stage()
    assert bench.settled() is Staged.READ


def test_few_readings_are_left_to_themselves(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    files = SlowFiles(monkeypatch)
    for _ in range(MAX_LEFT):
        bench.stage()
        assert files.begun.acquire(timeout=LIMIT_S)
        assert bench.look_for(STALL_S + 1) is Staged.FAILED
    bench.stage()
    assert bench.settle() is Staged.FAILED
    assert "4 adapters are being read whose files do not answer" in said(bench.rank)
    assert len(files.threads) == MAX_LEFT
    files.end()
    bench.stage()
    assert bench.settled() is Staged.READ


def test_chunks_of_a_slow_file_are_progress(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    files = SlowFiles(monkeypatch)
    bench.stage()
    assert files.begun.acquire(timeout=LIMIT_S)
    for _ in range(3):
        assert bench.look_for(STALL_S) is Staged.READING
        files.progressed[0]()
    files.end()
    assert bench.settled() is Staged.READ


def test_an_engine_that_was_stopped_while_files_are_read_has_not_waited_for_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SlowFiles(monkeypatch)
    bench.stage()
    assert files.begun.acquire(timeout=LIMIT_S)
    assert bench.look_for(STALL_S / 2) is Staged.READING
    bench.now_s += 10 * STALL_S
    assert bench.settle() is Staged.READING
    files.end()
    assert bench.settled() is Staged.READ


def test_a_reading_that_was_given_up_ends_at_its_next_chunk(tmp_path: Path) -> None:
    folder, permit = save_adapter(tmp_path / "a", CONFIG), Permit()
    permit.take_back()
    with pytest.raises(AdapterRefused, match="not wanted any more"):
        read_adapter(tmp_path, folder, CONFIG, progressed=permit.go_on)


@pytest.mark.parametrize("alpha", [1e300, 8e39])
def test_numbers_that_are_not_finite_are_refused_by_name(alpha: float, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    save_adapter(bench.folder, CONFIG, alpha=alpha)
    bench.word = word_of(bench.folder, CONFIG, slot=1, start=4)
    bench.stage()
    assert bench.settled() is Staged.REFUSED
    assert "model.layers.0.mlp.down_proj have values that are not finite" in said(bench.rank)


@pytest.mark.parametrize("lora_rank", [8, 12], ids=["of the same rank", "of more ranks"])
def test_files_that_have_changed_are_not_placed_and_touch_no_other_adapters_ranks(
    lora_rank: int, bench: Bench
) -> None:
    """Those from 12 on may be somebody's."""
    save_adapter(bench.folder, CONFIG, rank=lora_rank, seed=5)
    bench.stage()
    assert bench.settled() is Staged.FAILED
    assert "the files in a have changed since" in said(bench.rank)
    for layer in bench.bank.layers:
        assert layer.qkv is not None and not layer.qkv.starts.any()
        assert not any(bool(part.down[12:].any() or part.up[12:].any()) for part in layer.qkv.parts)


class NotingBank(AdapterBank):
    """Of a rank; it knows how many values it was given at once."""

    def __init__(self, rank: Rank) -> None:
        split = ModelSplit(config=CONFIG, rank=rank)
        room = AdapterRoom(num_lora_ranks=40, num_slots=3)
        super().__init__(split, room, dtype=torch.float32, device=torch.device("cpu"))
        self.given: list[int] = []

    def write_down(self, module: str, start: int, down: torch.Tensor) -> None:
        self.given.append(down.numel())
        super().write_down(module, start, down)

    def write_up(self, module: str, start: int, first: int, up: torch.Tensor) -> None:
        self.given.append(up.numel())
        super().write_up(module, start, first, up)

    @property
    def stacks(self) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for layer in self.layers:
            for site in (layer.qkv, layer.output, layer.gate_up, layer.down):
                assert site is not None
                found += [stack for part in site.parts for stack in (part.down, part.up)]
        return found


LONGEST_ROW = CONFIG.num_heads * CONFIG.head_dim
"""Values, of what goes into the matrix behind attention."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rank", [Rank(0, 1), Rank(0, 2), Rank(1, 2)], ids=str)
@pytest.mark.parametrize("chunk_bytes", [1, 3000])
def test_a_rank_has_the_same_part_of_a_file_that_it_has_a_chunk_of_at_a_time(
    chunk_bytes: int,
    rank: Rank,
    dtype: torch.dtype,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG, rank=32, dtype=dtype)
    word = word_of(folder, CONFIG, slot=1, start=4)
    whole, ours = NotingBank(rank), NotingBank(rank)
    read_into(whole, word)
    monkeypatch.setattr(tensor_file, "CHUNK_BYTES", chunk_bytes)
    assert set(read_into(ours, word).values()) == {32}
    assert all(torch.equal(*pair) for pair in zip(ours.stacks, whole.stacks, strict=True))
    assert all(bool(stack[4:36].all()) for stack in ours.stacks)  # none is left out
    assert max(ours.given) * dtype.itemsize <= max(chunk_bytes, LONGEST_ROW * dtype.itemsize)
    assert max(whole.given) > max(ours.given)
