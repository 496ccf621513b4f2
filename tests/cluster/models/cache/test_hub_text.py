"""A router has a hub's model without its weights, and the digest that its workers have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.common_options import ModelOptions
from cluster.config import RouterOptions
from cluster.errors import BadCheckpoint, ChecksumMismatch, SourceUnreachable, UnsupportedModel
from cluster.models.cache.store import ModelStore
from cluster.models.files.manifest import MANIFEST
from cluster.process.signals import StopRequests
from router import main
from router.front.model_loading import load_served_model
from tests.cluster.models.fake_hub import REPOSITORY, FakeHub, serving

SOURCE = f"hf://{REPOSITORY}"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def hub(tiny_folder: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Of a model in two shards."""
    tensors = {"a": np.zeros(4, dtype=np.float32)}
    tiny_folder.shards = {"one.safetensors": tensors, "two.safetensors": tensors}
    tiny_folder.files[INDEX] = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    tiny_folder.files["generation_config.json"] = {"temperature": 0.5}
    with serving(FakeHub(tiny_folder.write())) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield hub


@pytest.fixture
def router(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "router")


@pytest.fixture
def worker(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "worker")


def weights_asked(hub: FakeHub) -> list[str]:
    return [name for name in hub.requested if name.endswith(".safetensors")]


def test_a_router_fetches_no_weights_and_agrees_with_its_workers(
    hub: FakeHub, router: ModelStore, worker: ModelStore
) -> None:
    text = router.resolve_text(SOURCE)
    assert weights_asked(hub) == [] and not list(router.root.rglob("*.safetensors"))
    whole = worker.resolve(SOURCE)
    assert weights_asked(hub)
    assert text == replace(
        whole, metadata_path=text.metadata_path, weight_files=(), checkpoint_dtype=""
    )


def test_a_single_weight_file_has_the_same_digest_on_both_sides(
    hub: FakeHub, router: ModelStore, worker: ModelStore
) -> None:
    hub.files["model.safetensors"] = hub.files.pop("one.safetensors")
    del hub.files["two.safetensors"], hub.files[INDEX]
    text, whole = router.resolve_text(SOURCE), worker.resolve(SOURCE)
    assert (text.weights_digest, text.weight_bytes) == (whole.weights_digest, whole.weight_bytes)


def test_a_router_loads_its_text_side_from_what_it_fetched(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPLITSERVE_HOME", str(tmp_path / "router"))
    cards = []

    async def serve(options: RouterOptions, card: Any, stop_requests: StopRequests) -> int:
        cards.append(card)
        return 0

    monkeypatch.setattr(main, "_serve", serve)
    monkeypatch.setattr(main, "configure_logging", lambda role: None)
    options = RouterOptions(model=ModelOptions(model=SOURCE))
    assert main.run(options) == 0
    model = load_served_model(cards[0], options, lambda: 128)
    assert (model.name, model.defaults.temperature) == ("tiny-model", 0.5)
    assert weights_asked(hub) == []


def test_what_a_router_has_fetched_is_used_when_the_hub_is_gone(
    hub: FakeHub, router: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = router.resolve_text(SOURCE)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert router.resolve_text(SOURCE) == card
    (card.metadata_path / MANIFEST).write_text("{")  # is fetched again
    with pytest.raises(SourceUnreachable):
        router.resolve_text(SOURCE)


def test_a_whole_model_in_a_shared_cache_is_used_and_not_read_again(
    hub: FakeHub, worker: ModelStore
) -> None:
    whole, seen = worker.resolve(SOURCE), list[str]()
    hub.requested.clear()
    card = worker.resolve_text(SOURCE, lambda phase, done, total: seen.append(phase))
    assert card == whole
    assert (hub.requested, seen) == ([], [])


def test_a_worker_that_shares_the_routers_cache_still_fetches_the_weights(
    hub: FakeHub, router: ModelStore
) -> None:
    text = router.resolve_text(SOURCE)
    whole = router.resolve(SOURCE)
    assert all(path.is_file() for path in whole.weight_files) and len(whole.weight_files) == 2
    assert whole.weights_digest == text.weights_digest


def test_a_hub_that_does_not_state_the_digests_gives_the_whole_model(
    hub: FakeHub, router: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = hub._sibling

    def unstated(name: str, content: bytes) -> dict[str, Any]:
        return {key: value for key, value in told(name, content).items() if key != "lfs"}

    monkeypatch.setattr(hub, "_sibling", unstated)
    monkeypatch.setattr(
        hub,
        "tree",
        lambda: [
            {"type": "file", "path": name, "size": len(content), "oid": hub.etag(name)}
            for name, content in hub.files.items()
        ],
    )
    card = router.resolve_text(SOURCE)
    assert len(card.weight_files) == 2 and sorted(weights_asked(hub))
    assert not (router.root / "text").exists()


def test_an_altered_text_file_is_refused_and_nothing_is_complete(
    hub: FakeHub, router: ModelStore
) -> None:
    hub.altered["config.json"] = hub.files["config.json"].replace(b"128", b"999")
    with pytest.raises(ChecksumMismatch, match="is not git object"):
        router.resolve_text(SOURCE)
    assert not list(router.root.rglob(".complete"))


def test_a_shard_that_the_repository_lacks_is_named(hub: FakeHub, router: ModelStore) -> None:
    del hub.files["two.safetensors"]
    with pytest.raises(BadCheckpoint, match=r"needs two\.safetensors"):
        router.resolve_text(SOURCE)


def test_a_repository_of_pickles_is_refused_for_a_router_too(
    hub: FakeHub, router: ModelStore
) -> None:
    for name in ("one.safetensors", "two.safetensors"):
        del hub.files[name]
    with pytest.raises(UnsupportedModel, match="no .safetensors files"):
        router.resolve_text(SOURCE)


def test_a_users_own_folder_is_read_where_it_is(tiny_folder: Any, router: ModelStore) -> None:
    folder = str(tiny_folder.write())
    assert router.resolve_text(folder) == router.resolve(folder)
