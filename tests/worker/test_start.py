"""What a worker says of itself is what its engine has loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from cluster.common_options import ModelOptions
from cluster.engine_options import EngineOptions
from cluster.errors import PairingMismatch
from cluster.identity import Role, WorkerKey
from cluster.kv_events.keys import ReaderKeys
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard, QuantizationConfig, QuantMethod
from cluster.pairing import Pairing, check_pairing
from cluster.sampling import DRAWS_VERSION
from engine.contract.messages import Loaded, Ready
from engine.contract.spec import EngineSpec
from engine.contract.weight_format import WeightFormat
from engine.runner import gpu_formats
from engine.runner.replica import load_replica
from kernels.triton.gpu import HOPPER, Gpu
from tests.engine.model import family_models
from tests.engine.model.tiny_llama import random_model, tiny_config
from tests.engine.model.weights import quantized_files
from tests.kernels.gpus import AMPERE
from tests.kernels.kernel_sets import cpu_set
from tests.worker.worker_bench import options_for, tiny_card
from worker.engine.scripted_link import scripted_ready
from worker.start import facts_of, member_of, pairing_of, spec_of

FP8 = QuantizationConfig(method=QuantMethod.FP8, bits=8, group=None, is_float=True)


def spec_on(device: str, card: ModelCard) -> EngineSpec:
    options = options_for(
        Role.DECODE,
        model=ModelOptions(dtype="bfloat16"),
        engine=EngineOptions(block_size_tokens=4, device=device, kv_memory_bytes=1 << 20),
    )
    return spec_of(options, card, WorkerKey("d1", "1"))


def ready_with(weights: WeightFormat) -> Ready:
    return msgspec.structs.replace(scripted_ready(), loaded=Loaded(weights=weights))


def pairing_on_gpu(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Pairing:
    """Of a worker that leaves everything to "auto", on a machine with this GPU."""
    monkeypatch.setattr(gpu_formats, "gpu_of", lambda device: gpu)
    spec = spec_on("auto", replace(tiny_card(), quantization=FP8))
    weights = gpu_formats.weights_on(torch.device("cuda"), spec)
    return pairing_of(spec, ready_with(weights))


def test_a_gpu_that_keeps_8_bit_floats_does_not_pair_with_one_that_dequantizes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prefill, decode = (pairing_on_gpu(gpu, monkeypatch) for gpu in (HOPPER, AMPERE))
    assert prefill.key != decode.key  # nor do their blocks have the same names
    with pytest.raises(PairingMismatch, match="weights is 'stored' there and 'full' here"):
        check_pairing(decode, prefill, peer="p1")


def test_two_cpus_that_compute_the_same_pair_whether_the_device_was_named_or_not(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "floats"
    quantized_files.write_folder(
        random_model(tiny_config(tie_word_embeddings=False)),
        folder,
        {"quant_method": "fp8", "activation_scheme": "dynamic"},
        lambda matrix: quantized_files.fp8(matrix, scale_shape=()),
    )
    card = ModelStore(tmp_path / "home").show(str(folder))
    pairings = []
    for device in ("cpu", "auto"):
        spec = spec_on(device, card)
        replica = load_replica(
            msgspec.structs.replace(spec, options=replace(spec.options, device="cpu")),
            lambda phase, fraction: None,
        )
        pairings.append(pairing_of(spec, ready_with(replica.loaded.weights)))
    assert [pairing.weights for pairing in pairings] == ["full", "full"]
    check_pairing(*pairings, peer="d1")


def test_the_operator_is_told_which_kernels_run_and_why_not_natively(tmp_path: Path) -> None:
    name = cpu_set("native").name
    experts = ("MixtralForCausalLM", {"num_local_experts": 4})
    words = []
    for family, changes in (experts, ("Qwen3ForCausalLM", {})):
        model = family_models.random_model(family, **changes)
        spec = spec_on("cpu", family_models.saved_card(model, tmp_path / family))
        loaded = load_replica(spec, lambda phase, fraction: None).loaded
        ready = msgspec.structs.replace(scripted_ready(), loaded=loaded)
        words.append(facts_of(spec, ready, metrics_port=0)["kernels"])
    assert words == [
        f"{name}, kernel by kernel: no native form of RouteExperts",
        f"{name}, 1 native call(s) per step",
    ]


def test_the_fleet_and_the_operator_are_told_the_format_that_was_loaded() -> None:
    spec = spec_on("auto", replace(tiny_card(), quantization=FP8))
    assert spec.weights is WeightFormat.STORED
    ready = ready_with(WeightFormat.FULL)
    member = member_of(
        spec,
        ready,
        address="a:1",
        events=("e", "r"),
        event_keys=ReaderKeys("k", "s"),
        model="tiny",
        pid=1,
    )
    assert member.pairing.weights == "full"
    assert facts_of(spec, ready, metrics_port=0)["weights"] == "full"


def test_a_draft_model_has_the_precision_that_was_asked_for() -> None:
    options = options_for(Role.DECODE, model=ModelOptions(dtype="bfloat16", weights="int8"))
    key, card = WorkerKey("d1", "1"), replace(tiny_card(), name="smaller")
    spec = spec_of(options, tiny_card(), key, card)
    assert spec.draft is not None
    assert (spec.draft.dtype, spec.draft.weights) == ("bfloat16", WeightFormat.INT8)
    assert EngineSpec.unpack(spec.pack()) == spec
    facts = facts_of(spec, ready_with(WeightFormat.FULL), metrics_port=0)
    assert facts["speculation"] == "smaller (int8, bfloat16)"
    plain = spec_of(options, tiny_card(), key)
    assert facts_of(plain, ready_with(WeightFormat.FULL), metrics_port=0)["speculation"] == "auto"


@pytest.mark.parametrize(
    ("speculation", "role", "num_layers", "has_head"),
    [
        ("auto", Role.DECODE, 1, True),
        ("auto", Role.DECODE, 0, False),
        ("auto", Role.PREFILL, 1, False),
        ("heads", Role.DECODE, 0, True),  # refused where it is loaded, by name
        ("ngram", Role.DECODE, 1, False),
        ("off", Role.DECODE, 1, False),
    ],
)
def test_auto_asks_for_the_models_own_layer_where_its_checkpoint_has_one(
    speculation: str, role: Role, num_layers: int, has_head: bool
) -> None:
    options = options_for(role, engine=EngineOptions(speculation=speculation))
    card = tiny_card()
    card = replace(card, config=replace(card.config, num_prediction_layers=num_layers))
    spec = spec_of(options, card, WorkerKey("w", "1"))
    assert (spec.heads is not None) is has_head


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_the_fleet_is_told_whether_what_a_worker_served_can_be_found_there(
    prefix_cache: bool,
) -> None:
    spec = spec_on("auto", tiny_card())
    spec = msgspec.structs.replace(spec, options=replace(spec.options, prefix_cache=prefix_cache))
    ready = ready_with(WeightFormat.FULL)
    member = member_of(
        spec,
        ready,
        address="a:1",
        events=("e", "r"),
        event_keys=ReaderKeys("k", "s"),
        model="tiny",
        pid=1,
    )
    assert member.prefix_cache_off is not prefix_cache
    assert member.draws == DRAWS_VERSION > 0


@pytest.mark.parametrize(("is_divided", "num_seats"), [(True, 8), (False, 10)])
def test_the_fleet_is_told_the_seats_that_ranks_have_together(
    is_divided: bool, num_seats: int
) -> None:
    spec = spec_on("auto", tiny_card())
    options = replace(
        spec.options,
        max_num_seqs=10,
        tensor_parallel_size=4,
        data_parallel_attention=is_divided,
    )
    member = member_of(
        msgspec.structs.replace(spec, options=options),
        ready_with(WeightFormat.FULL),
        address="a:1",
        events=("e", "r"),
        event_keys=ReaderKeys("k", "s"),
        model="tiny",
        pid=1,
    )
    assert member.max_num_seqs == num_seats
