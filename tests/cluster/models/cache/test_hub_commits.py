"""A fetch into a cache that is in use: what is read there goes on being read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import ChecksumMismatch, SourceUnreachable
from cluster.models.cache import hub_commits
from cluster.models.cache.hub_commits import COMPLETE, current_folder
from cluster.models.cache.store import ModelStore
from cluster.models.files.manifest import MANIFEST
from tests.cluster.models.fake_hub import REPOSITORY, FakeHub, serving

SOURCE = f"hf://{REPOSITORY}"
TEMPLATE = b'{"eos_token": "<|endoftext|>", "chat_template": "another"}'


@pytest.fixture
def hub(tiny_folder: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serving(FakeHub(tiny_folder.write())) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield hub


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "home")


def moved(hub: FakeHub, commit: str = "d", template: bytes = TEMPLATE) -> None:
    """The hub's main is another commit, with another template."""
    hub.commit = commit * 40
    hub.files["tokenizer_config.json"] = template


def watched_pull(store: ModelStore, folder: Path) -> list[bool]:
    """Whether the model was whole there at each step of a fetch."""
    seen: list[bool] = []

    def look(phase: str, done: int, total: int | None) -> None:
        seen.append((folder / COMPLETE).is_file() and (folder / MANIFEST).is_file())

    store.pull(SOURCE, look)
    return seen


def test_a_model_that_is_there_is_neither_fetched_nor_touched_again(
    hub: FakeHub, store: ModelStore
) -> None:
    folder = store.pull(SOURCE).metadata_path
    files = {path: path.stat().st_ino for path in folder.iterdir() if path.suffix}
    hub.requested.clear()
    assert all(watched_pull(store, folder))
    assert hub.requested == []
    assert files == {path: path.stat().st_ino for path in files}


def test_another_commit_lands_beside_the_one_that_is_read(hub: FakeHub, store: ModelStore) -> None:
    before = store.pull(SOURCE)
    moved(hub)
    hub.requested.clear()
    seen = watched_pull(store, before.metadata_path)
    assert seen and all(seen)
    after = store.resolve(SOURCE)
    assert after.tokenizer_digest != before.tokenizer_digest
    assert after.weights_digest == before.weights_digest
    assert after.metadata_path != before.metadata_path and before.metadata_path.is_dir()
    assert "model.safetensors" not in hub.requested, "both commits have it"
    (old,), (new,) = before.weight_files, after.weight_files
    assert new.samefile(old)


def test_weights_are_fetched_where_a_disk_has_no_second_name_for_a_file(
    hub: FakeHub, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.pull(SOURCE)
    moved(hub)

    def refuse(*args: Any) -> None:
        raise OSError("not here")

    monkeypatch.setattr(hub_commits.os, "link", refuse)
    hub.requested.clear()
    assert store.pull(SOURCE).weight_files[0].is_file()
    assert "model.safetensors" in hub.requested


def test_a_fetch_of_another_commit_that_fails_leaves_the_one_that_is_read(
    hub: FakeHub, store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.pull(SOURCE)
    moved(hub)
    hub.altered["tokenizer_config.json"] = TEMPLATE.replace(b"another", b"altered")
    with pytest.raises(ChecksumMismatch):
        store.pull(SOURCE)
    assert store.show(SOURCE) == before
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceUnreachable):
        store.pull(SOURCE)
    assert store.resolve(SOURCE) == before


def test_a_failed_fetch_of_another_commit_goes_on_at_the_next(
    hub: FakeHub, store: ModelStore
) -> None:
    before = store.pull(SOURCE)
    moved(hub)
    hub.altered["tokenizer_config.json"] = TEMPLATE.replace(b"another", b"altered")
    with pytest.raises(ChecksumMismatch):
        store.pull(SOURCE)
    hub.altered.clear()
    assert store.pull(SOURCE).tokenizer_digest != before.tokenizer_digest
    assert store.resolve(SOURCE).metadata_path.name == "d" * 40


def test_a_commit_that_changes_nothing_of_the_model_stays_where_it_is(
    hub: FakeHub, store: ModelStore
) -> None:
    before = store.pull(SOURCE)
    hub.commit = "d" * 40
    assert store.pull(SOURCE) == before
    assert (before.metadata_path / COMPLETE).read_text() == hub.commit


def test_a_file_that_was_dropped_is_not_in_the_next_commit(hub: FakeHub, store: ModelStore) -> None:
    hub.files["chat_template.jinja"] = b"{{ messages }}"
    before = store.pull(SOURCE)
    hub.commit = "d" * 40
    del hub.files["chat_template.jinja"]
    after = store.pull(SOURCE)
    assert (before.metadata_path / "chat_template.jinja").is_file()
    assert not (after.metadata_path / "chat_template.jinja").exists()


def test_the_template_of_tools_is_fetched_from_its_folder_and_dropped_with_it(
    hub: FakeHub, store: ModelStore
) -> None:
    name = "additional_chat_templates/tool_use.jinja"
    hub.files[name] = b"{{ tools }}"
    before = store.pull(SOURCE)
    hub.commit = "d" * 40
    del hub.files[name]
    after = store.pull(SOURCE)
    assert (before.metadata_path / name).is_file()
    assert not (after.metadata_path / name).exists()


def test_the_commit_before_stays_until_the_next_is_fetched(hub: FakeHub, store: ModelStore) -> None:
    first = store.pull(SOURCE).metadata_path
    moved(hub, "d")
    second = store.pull(SOURCE).metadata_path
    assert (first / COMPLETE).is_file()
    moved(hub, "e", TEMPLATE.replace(b"another", b"a third"))
    third = store.pull(SOURCE).metadata_path
    assert not (first / COMPLETE).exists() and not (first / "model.safetensors").exists()
    moved(hub, "f", TEMPLATE.replace(b"another", b"a fourth"))
    fourth = store.pull(SOURCE).metadata_path
    assert not second.exists()
    assert third.is_dir() and current_folder(first) == fourth
    (entry,) = [entry for entry in store.list_models() if entry.source == f"{SOURCE}@main"]
    assert entry.cached_path == fourth


def test_a_commit_that_is_no_name_for_a_folder_is_fetched_in_place(
    hub: FakeHub, store: ModelStore
) -> None:
    folder = store.pull(SOURCE).metadata_path
    (folder / COMPLETE).write_text("")
    (folder / ".now").write_text("../../elsewhere")
    moved(hub)
    hub.commit = ""
    assert store.pull(SOURCE).metadata_path == folder
