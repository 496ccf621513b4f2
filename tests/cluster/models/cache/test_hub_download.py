from __future__ import annotations

import errno
import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.errors import ChecksumMismatch, DiskFull, SourceUnreachable, UnsupportedModel
from cluster.models.cache.store import ModelStore
from cluster.models.files import disk
from cluster.models.files.manifest import MANIFEST
from tests.cluster.models.fake_hub import REPOSITORY, FakeHub, serving

SOURCE = f"hf://{REPOSITORY}"


@pytest.fixture
def hub(tiny_folder: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    tiny_folder.files["README.md"] = "text"
    folder = tiny_folder.write()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04pickle")
    with serving(FakeHub(folder)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield hub


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "home")


def test_a_repository_becomes_a_folder_of_safe_files(hub: FakeHub, store: ModelStore) -> None:
    seen: list[tuple[str, int, int | None]] = []
    card = store.resolve(SOURCE, lambda *step: seen.append(step))
    folder = store.root / "hub" / "someone--tiny-model" / "main"
    assert (card.name, card.metadata_path) == ("tiny-model", folder)
    names = {path.name for path in folder.iterdir() if path.is_file()}
    assert names == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        ".complete",
        ".digests",
    }
    total = sum(len(hub.files[name]) for name in names & hub.files.keys())
    assert ("download", total, total) in seen
    download = [done for phase, done, _ in seen if phase == "download"]
    assert download[0] == 0 and download == sorted(download)
    assert any(0 < done < total for done in download), "the client's own progress was told"
    assert "pytorch_model.bin" not in hub.requested


def test_what_is_cached_is_used_when_the_hub_is_gone(
    hub: FakeHub, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = store.resolve(SOURCE)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert store.resolve(SOURCE) == store.show(SOURCE) == card
    assert [e.source for e in store.list_models()] == ["smollm2", f"{SOURCE}@main"]
    with pytest.raises(SourceUnreachable, match="pass a local folder"):
        store.pull(SOURCE)


def test_a_repository_that_is_not_there_is_unreachable(hub: FakeHub, store: ModelStore) -> None:
    with pytest.raises(SourceUnreachable, match="hf://someone/else@main cannot be fetched"):
        store.resolve("hf://someone/else")


def test_a_fetch_that_is_tried_again_reads_no_weights_twice(
    hub: FakeHub, store: ModelStore
) -> None:
    seen: list[tuple[str, int, int | None]] = []
    store.pull(SOURCE, lambda *step: seen.append(step))
    store.pull(SOURCE, lambda *step: seen.append(step))
    size = len(hub.files["model.safetensors"])
    assert seen.count(("verify", size, size)) == 1


def test_a_model_that_was_fetched_is_not_read_where_its_folder_is_copied_to(
    hub: FakeHub, store: ModelStore, tmp_path: Path
) -> None:
    card, seen = store.pull(SOURCE), list[str]()
    copy = shutil.copytree(card.metadata_path, tmp_path / "copied")
    elsewhere = ModelStore(tmp_path / "other home")
    again = elsewhere.resolve(str(copy), lambda phase, done, total: seen.append(f"{phase} {total}"))
    assert again.weights_digest == card.weights_digest
    assert f"verify {len(hub.files['model.safetensors'])}" not in seen


def test_a_manifest_goes_before_its_model_is_fetched_again(hub: FakeHub, store: ModelStore) -> None:
    folder = store.pull(SOURCE).metadata_path
    assert (folder / MANIFEST).is_file()
    hub.altered["config.json"] = b"{}"
    (folder / "config.json").unlink()
    with pytest.raises(ChecksumMismatch):
        store.pull(SOURCE)
    assert not (folder / MANIFEST).exists()


def test_an_altered_weight_file_is_a_checksum_mismatch(hub: FakeHub, store: ModelStore) -> None:
    whole = hub.files["model.safetensors"]
    hub.altered["model.safetensors"] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(ChecksumMismatch, match=r"model\.safetensors has SHA-256"):
        store.resolve(SOURCE)
    assert not list(store.root.rglob(".complete"))


def test_an_altered_text_file_is_a_checksum_mismatch(hub: FakeHub, store: ModelStore) -> None:
    whole = hub.files["config.json"]
    hub.altered["config.json"] = whole.replace(b"128", b"999")
    with pytest.raises(ChecksumMismatch, match=r"config\.json is not git object"):
        store.resolve(SOURCE)


def test_a_repository_of_pickles_is_refused_before_anything_is_fetched(
    hub: FakeHub, store: ModelStore
) -> None:
    del hub.files["model.safetensors"]
    with pytest.raises(UnsupportedModel, match="no .safetensors files"):
        store.resolve(SOURCE)
    assert hub.requested == []


def test_too_little_room_is_known_before_the_download(
    hub: FakeHub, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: usage(10, 0, 12))
    with pytest.raises(DiskFull, match="12 bytes are free"):
        store.resolve(SOURCE)
    assert hub.requested == []


def test_a_disk_that_fills_while_fetching_is_a_full_disk(
    hub: FakeHub, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("huggingface_hub.snapshot_download", full)
    with pytest.raises(DiskFull, match="SPLITSERVE_HOME"):
        store.resolve(SOURCE)


def test_a_download_that_was_cut_goes_on_where_it_stopped(
    hub: FakeHub, store: ModelStore, tiny_folder: Any
) -> None:
    """The hub's client writes pieces of 10 MB: the file has to be larger."""
    tiny_folder.shards["model.safetensors"]["w"] = np.zeros(6_000_000, dtype=np.float32)
    hub.files["model.safetensors"] = (tiny_folder.write() / "model.safetensors").read_bytes()
    hub.cut_after["model.safetensors"] = 12_000_000
    store.resolve(SOURCE)
    assert [line for line in hub.ranges if line.startswith("model.safetensors bytes=1")]


def test_what_sentence_transformers_says_of_pooling_is_fetched_too(
    hub: FakeHub, store: ModelStore
) -> None:
    modules = '[{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]'
    hub.files["modules.json"] = modules.encode()
    hub.files["1_Pooling/config.json"] = b'{"pooling_mode_lasttoken": true}'
    hub.files["onnx/config.json"] = b"{}"
    card = store.resolve(SOURCE)
    assert card.pooling is not None and card.pooling.kind.value == "last"
    assert "onnx/config.json" not in hub.requested
