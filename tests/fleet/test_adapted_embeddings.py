"""Embeddings by adapters in a fleet of real processes: those of transformers on merged weights."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest
import torch

from cluster.models.cache.store import ModelStore
from tests.adapter_files import merge, random_tensors, save_adapter
from tests.fleet.one_fleet import ENGINE
from tests.fleet.support import Fleet, running_fleet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RANK, ALPHA = 8, 0.5
TEXTS = ["The river ran past an old stone mill.", "Ships", "told stories of distant cities " * 60]
CLOSE = {"rtol": 1e-3, "atol": 5e-5}
"""float32 sums in another order, over 30 layers, of values that are at most 1."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    root, config = tmp_path_factory.mktemp("adapters"), ModelStore().resolve("smollm2").config
    for seed, name in enumerate(("one", "two"), 1):
        save_adapter(root / name, config, rank=RANK, alpha=ALPHA, seed=seed)
    options = ("--prefill", "2", "--decode", "0", "--pooling", "last", "--dtype", "float32")
    given = (*options, *ENGINE, "--adapters", str(root), "--adapter-ranks", "16")
    with running_fleet(tmp_path_factory.mktemp("logs"), *given, num_workers=2) as running:
        yield running


def expected(reference, seed: int) -> list[torch.Tensor]:  # type: ignore[no-untyped-def]
    """By transformers; seed 0: the model alone."""
    model, config = reference._model, ModelStore().resolve("smollm2").config
    base = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    state = base
    if seed:
        state = merge(base, random_tensors(config, rank=RANK, seed=seed), ALPHA / RANK)
    try:
        with torch.inference_mode():  # where others asked it first its weights belong there
            model.load_state_dict(state)
        rows = [reference.hidden(reference.tokenizer(text)["input_ids"])[-1] for text in TEXTS]
        return [torch.nn.functional.normalize(row, dim=0) for row in rows]
    finally:
        with torch.inference_mode():
            model.load_state_dict(base)


def test_each_adapter_s_embeddings_are_those_of_its_merged_weights(fleet, reference) -> None:
    base = httpx.get(f"{fleet.url}/v1/models").json()["data"][0]["id"]
    url = f"{fleet.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120) as client:
        for _ in range(2):  # the second time from the cache of that adapter
            for seed, name in enumerate((base, "one", "two")):
                answer = client.embeddings.create(model=name, input=TEXTS)
                assert answer.model == name
                for each, wanted in zip(answer.data, expected(reference, seed), strict=True):
                    torch.testing.assert_close(torch.tensor(each.embedding), wanted, **CLOSE)
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="three", input=TEXTS)
    page = httpx.get(f"{fleet.url}/metrics").text
    assert 'splitserve_adapter_requests_total{adapter="one",outcome="ok"} 6.0' in page
