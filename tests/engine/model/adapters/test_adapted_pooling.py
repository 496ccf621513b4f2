"""Embeddings with adapters: those of a model with the adapter merged in, in one step with others
and beside answers."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import structs

from cluster.block_hash import cache_root
from cluster.models.adapters.files import read_adapter
from cluster.models.card import DecoderConfig, ModelCard
from cluster.models.pooling import Pooling, PoolingKind
from cluster.sampling import SamplingParams
from engine.contract.adapters import LoadAdapter
from engine.contract.commands import GenerateRequest, PrefillMode, Submit
from engine.contract.messages import Frame
from engine.contract.spec import EngineSpec
from engine.runner.replica import load_replica
from engine.step.engine import Engine
from tests.adapter_files import save_adapter
from tests.engine.model.adapters.test_adapted_engine import SEEDS, merged, quiet, spec_of
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.engine.runner.ranks.groups import running

LIMIT_S = 60.0
CLOSE = {"rtol": 3e-4, "atol": 5e-5}
"""Float32 sums in another order, of values that are at most 1."""
PROMPTS = ([3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37], [41, 43], [3, 5, 7, 11, 13, 17, 19, 23, 41])


class Pooled:
    """An engine that pools, and answers."""

    def __init__(self, engine: Engine, config: DecoderConfig, adapters: Path | None) -> None:
        self.engine, self.config, self.root = engine, config, adapters

    def add(self, name: str) -> str:
        assert self.root is not None
        folder = save_adapter(self.root / name, self.config, seed=SEEDS[name])
        digest = read_adapter(self.root, folder, self.config).digest
        self.engine.apply(
            LoadAdapter(digest=digest, root=str(self.root), folder=str(folder), lora_rank=8)
        )
        self._until(lambda frame: any(news.digest == digest for news in frame.adapters))
        return digest

    def embed(self, digests: dict[str, str], *, beside: bool = False) -> dict[str, torch.Tensor]:
        """Every prompt by every adapter, all at once."""
        left = {f"{name}/{at}" for name in digests for at in range(len(PROMPTS))}
        for name, digest in digests.items():
            for at, prompt in enumerate(PROMPTS):
                self._ask(f"{name}/{at}", prompt, digest, PrefillMode.POOL)
                if beside:
                    self._ask(f"text {name}/{at}", prompt, digest, PrefillMode.LOCAL)
        found: dict[str, torch.Tensor] = {}

        def is_over(frame: Frame) -> bool:
            assert not any(ended.error_code for ended in frame.ended), frame.ended
            for each in frame.pooled:
                values = np.frombuffer(each.values, "<f4").copy()
                found[each.request_id] = torch.from_numpy(values)
            return found.keys() == left and self.engine.is_idle

        self._until(is_over)
        assert self.engine.check_invariants() == []
        return found

    def _ask(self, name: str, prompt: list[int], digest: str, mode: PrefillMode) -> None:
        self.engine.apply(
            Submit(
                GenerateRequest(
                    request_id=name,
                    token_ids=list(prompt),
                    sampling=SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True),
                    cache_root=cache_root("pair", "", digest),
                    mode=mode,
                    timeout_ms=math.inf,
                    adapter=digest,
                )
            )
        )

    def _until(self, is_there) -> None:  # type: ignore[no-untyped-def]
        limit_s = time.monotonic() + LIMIT_S
        while not is_there(self.engine.step()):
            assert time.monotonic() < limit_s, "it never came"


def pooling_spec(
    card: ModelCard, kind: PoolingKind, adapters: Path | None = None, **options: object
) -> EngineSpec:
    if adapters is not None:
        options["adapters"] = str(adapters)
    spec = spec_of(card, max_batch_tokens=8, **options)
    return structs.replace(spec, pooling=Pooling(kind=kind, generates=True))


def alone(card: ModelCard, kind: PoolingKind, adapters: Path | None = None) -> Pooled:
    """In one process."""
    spec = pooling_spec(card, kind, adapters)
    return Pooled(Engine(load_replica(spec, quiet), spec.options), card.config, adapters)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    return saved_card(random_model(tiny_config()), tmp_path_factory.mktemp("base"))


@pytest.mark.parametrize("kind", [PoolingKind.LAST, PoolingKind.MEAN])
def test_each_prompt_has_the_embedding_of_its_adapter_merged_in(
    base: ModelCard, kind: PoolingKind, tmp_path: Path
) -> None:
    pooled = alone(base, kind, tmp_path / "adapters")
    digests = {"": "", **{name: pooled.add(name) for name in ("a", "b")}}
    expected: dict[str, torch.Tensor] = {}
    for name in digests:
        folder = tmp_path / f"merged-{name}"
        folder.mkdir()
        expected |= alone(merged(base, name, folder), kind).embed({name: ""})
    for beside in (False, True):  # the second time over what is cached, by adapter
        found = pooled.embed(digests, beside=beside)
        for name, values in expected.items():
            torch.testing.assert_close(found[name], values, **CLOSE)
    assert not torch.allclose(expected["/0"], expected["a/0"], atol=1e-2)


def test_without_an_adapter_an_embedding_is_the_same_to_the_last_bit(
    base: ModelCard, tmp_path: Path
) -> None:
    with_room = alone(base, PoolingKind.LAST, tmp_path)
    with_room.add("a")
    without = alone(base, PoolingKind.LAST).embed({"": ""})
    for name, values in with_room.embed({"": ""}).items():
        assert torch.equal(values, without[name])


@pytest.mark.timeout(300)
def test_two_ranks_pool_with_adapters_as_one_does(base: ModelCard, tmp_path: Path) -> None:
    kind, root = PoolingKind.LAST, tmp_path / "adapters"
    one = alone(base, kind, root)
    digests = {"": "", **{name: one.add(name) for name in ("a", "b")}}
    expected = one.embed(digests)
    spec = pooling_spec(base, kind, root, tensor_parallel_size=2, num_threads=2)
    with running(spec) as replica:
        two = Pooled(Engine(replica, spec.options), base.config, root)
        assert {name: two.add(name) for name in ("a", "b")} == {n: digests[n] for n in "ab"}
        found = two.embed(digests, beside=True)
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, **CLOSE)
