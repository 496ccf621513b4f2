"""What makes two ranks unequal, and how each is named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cluster.errors import ConfigError
from cluster.rank_facts import RankFacts
from engine.runner.ranks.group import require_one_form
from engine.runner.ranks.loaded_facts import form_of, name_of
from engine.runner.replica import LoadedPart

CPU = torch.device("cpu")


def part_of(*, kernels: str, mixture: object = None) -> LoadedPart:
    """As much of one as says what form it has."""
    split: Any = SimpleNamespace(column_unit=1, config=SimpleNamespace(mixture=mixture))
    decoder = SimpleNamespace(split=split, kernel_set=kernels)
    return cast(LoadedPart, SimpleNamespace(weights="full", decoder=decoder))


def rank(number: int, loaded_as: str) -> RankFacts:
    return RankFacts(
        rank=number,
        pid=1,
        node="there",
        device="cpu",
        generation=7,
        kv_heads=(0,),
        loaded_as=loaded_as,
    )


@pytest.mark.parametrize("other", ["avx2", "torch"])
def test_ranks_of_a_mixture_with_other_kernels_are_refused_with_both(other: str) -> None:
    forms = [form_of(part_of(kernels=name, mixture=8), CPU) for name in ("avx512", other)]
    with pytest.raises(ConfigError, match=rf"routed by avx512 (.|\n)*routed by {other}"):
        require_one_form([rank(at, form) for at, form in enumerate(forms)])


def test_ranks_of_a_mixture_on_gpus_of_two_kinds_are_refused_with_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part, forms = part_of(kernels="triton", mixture=8), []
    for name, capability in (("A100", (8, 0)), ("H100", (9, 0))):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _, name=name: name)
        monkeypatch.setattr(
            torch.cuda, "get_device_capability", lambda _, capability=capability: capability
        )
        forms.append(form_of(part, torch.device("cuda", 0)))
    with pytest.raises(ConfigError, match=r"A100 .*8\.0(.|\n)*H100 .*9\.0"):
        require_one_form([rank(at, form) for at, form in enumerate(forms)])


def test_a_model_without_experts_may_be_computed_by_unequal_hosts() -> None:
    require_one_form(
        [rank(at, form_of(part_of(kernels=name), CPU)) for at, name in enumerate(("a", "b"))]
    )


def test_a_gpu_is_named_as_its_host_names_it() -> None:
    first = torch.device("cuda", 0)
    assert name_of(first, {"CUDA_VISIBLE_DEVICES": "3"}) == "cuda:3"
    assert name_of(first, {"CUDA_VISIBLE_DEVICES": "GPU-8a"}) == "cuda:GPU-8a"
    assert name_of(first, {}) == "cuda:0"
    assert name_of(CPU, {"CUDA_VISIBLE_DEVICES": "3"}) == "cpu"
