"""A decoder with adapters against decoders whose matrices have them merged in, in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import engine.model.decoder
from cluster.models.card import ModelCard
from cluster.sharding import Rank
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.adapters.bank import AdapterRoom
from engine.model.adapters.reading import read_into
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.model.rank_place import RankPlace
from tests.adapter_files import merge, random_tensors, save_adapter, word_of
from tests.engine.model.rank_decoders import rank_split
from tests.engine.model.tiny_llama import (
    BLOCK_SIZE,
    ragged_batch,
    random_model,
    saved_card,
    tiny_config,
)
from tests.kernels.kernel_sets import cpu_set
from tests.kernels.ranks import ThreadRank, run_ranks

CLOSE = {"rtol": 3e-4, "atol": 5e-4}
"""Float32 sums in another order, as against transformers."""
ROOM = AdapterRoom(num_lora_ranks=64, num_slots=5)
ADAPTERS = {
    1: {"rank": 8, "alpha": 16.0, "seed": 1},
    2: {"rank": 16, "alpha": 8.0, "seed": 2, "use_rslora": True},
    3: {"rank": 8, "alpha": 8.0, "seed": 3, "targets": ("q_proj", "v_proj", "down_proj")},
}
"""By slot."""
STARTS = {1: 20, 2: 40, 3: 3}
LENGTHS = (1, 9, 1, 14, 3)
SLOTS = (1, 2, 0, 3, 1)
"""Of the sequences of a batch."""


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapted")


@pytest.fixture(scope="module")
def card(model_folder: Path) -> ModelCard:
    return saved_card(random_model(tiny_config()), model_folder / "base")


@pytest.fixture(scope="module")
def folders(card: ModelCard, model_folder: Path) -> dict[int, Path]:
    return {
        slot: save_adapter(model_folder / "adapters" / f"a{slot}", card.config, **settings)  # type: ignore[arg-type]
        for slot, settings in ADAPTERS.items()
    }


def scale_of(slot: int) -> float:
    settings = ADAPTERS[slot]
    rank, alpha = settings["rank"], settings["alpha"]
    assert isinstance(rank, int) and isinstance(alpha, float)
    return alpha / rank**0.5 if settings.get("use_rslora") else alpha / rank


def merged(card: ModelCard, slot: int, folder: Path) -> ModelCard:
    """The base's checkpoint with one adapter in it."""
    model = random_model(tiny_config())
    if slot:
        settings = {k: v for k, v in ADAPTERS[slot].items() if k in ("rank", "seed", "targets")}
        tensors = random_tensors(card.config, **settings)  # type: ignore[arg-type]
        state = {name: tensor.data for name, tensor in model.named_parameters()}
        with torch.no_grad():
            for name, tensor in merge(state, tensors, scale_of(slot)).items():
                state[name].copy_(tensor)
    return saved_card(model, folder / f"merged-{slot}")


def place_all(decoder: Decoder, folders: dict[int, Path]) -> Decoder:
    bank = decoder.bank
    assert bank is not None
    for slot, folder in folders.items():
        ranks = read_into(bank, word_of(folder, bank.config, slot=slot, start=STARTS[slot]))
        bank.place(slot, STARTS[slot], ranks)
    return decoder


def batch_of(slots: tuple[int, ...] | None) -> RaggedBatch:
    """Prompts side by side; None: no sequence has an adapter."""
    made = torch.Generator().manual_seed(7)
    chunks = []
    for at, length in enumerate(LENGTHS):
        tokens = torch.randint(0, 61, (length,), generator=made).tolist()
        chunks.append((tokens, 0, [4 * at + i for i in range(4)]))
    order = sorted(range(len(chunks)), key=lambda at: LENGTHS[at] > 1)
    batch = ragged_batch([chunks[at] for at in order])
    if slots is None:
        return batch
    rows = [slots[at] for at in order for _ in range(LENGTHS[at])]
    return replace(batch, adapters=torch.tensor(rows, dtype=torch.int32))


def logits_of(decoder: Decoder, batch: RaggedBatch) -> torch.Tensor:
    layout = KvLayout.of_part(decoder.split, BLOCK_SIZE, decoder.dtype)
    with torch.inference_mode():
        return decoder.forward(batch, KvPool(layout, 4 * len(LENGTHS), "cpu")).clone()


@pytest.fixture(scope="module")
def expected(card: ModelCard, tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    """Of each row by the decoder that has its adapter merged in."""
    folder, batch = tmp_path_factory.mktemp("merged"), batch_of(SLOTS)
    assert batch.adapters is not None
    rows = torch.empty(len(batch.token_ids), 61)
    for slot in sorted(set(SLOTS)):
        decoder = Decoder.load(merged(card, slot, folder), torch.float32, "cpu")
        is_its = batch.adapters == slot
        rows[is_its] = logits_of(decoder, batch_of(None))[is_its]
    return rows


@pytest.mark.parametrize("name", ["reference", "torch", "native"])
def test_logits_are_those_of_merged_weights(
    name: str,
    card: ModelCard,
    folders: dict[int, Path],
    expected: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine.model.decoder, "kernels_for", lambda device, folder: cpu_set(name))
    decoder = place_all(Decoder.load(card, torch.float32, "cpu", adapters=ROOM), folders)
    torch.testing.assert_close(logits_of(decoder, batch_of(SLOTS)), expected, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_without_an_adapter_keep_their_bits(
    dtype: torch.dtype, card: ModelCard, folders: dict[int, Path]
) -> None:
    cpu_set("native")  # whose rows are independent
    plain = logits_of(Decoder.load(card, dtype, "cpu"), batch_of(None))
    decoder = place_all(Decoder.load(card, dtype, "cpu", adapters=ROOM), folders)
    batch = batch_of(SLOTS)
    assert batch.adapters is not None
    mixed, none = logits_of(decoder, batch), logits_of(decoder, batch_of(None))
    assert torch.equal(mixed[batch.adapters == 0], plain[batch.adapters == 0])
    assert torch.equal(none, plain)
    assert not torch.equal(mixed[batch.adapters == 1], plain[batch.adapters == 1])


def test_a_step_without_adapters_has_no_operation_more(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    take = engine.model.decoder.player_of

    def count(recording, kernels):  # type: ignore[no-untyped-def]
        seen.append(len(recording.operations))
        return take(recording, kernels)

    monkeypatch.setattr(engine.model.decoder, "player_of", count)
    Decoder.load(card, torch.float32, "cpu")
    Decoder.load(card, torch.float32, "cpu", adapters=ROOM)
    without, plain, adapting = seen
    assert without == plain
    assert adapting == plain + 4 * card.config.num_layers


@pytest.mark.parametrize("wanted", [(0, 5, 11), (27,)])
def test_only_rows_with_wanted_logits_may_be_asked_for(
    wanted: tuple[int, ...], card: ModelCard, folders: dict[int, Path], expected: torch.Tensor
) -> None:
    decoder = place_all(Decoder.load(card, torch.float32, "cpu", adapters=ROOM), folders)
    batch = replace(batch_of(SLOTS), logit_rows=torch.tensor(wanted))
    torch.testing.assert_close(logits_of(decoder, batch), expected[list(wanted)], **CLOSE)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_that_share_the_matrices_add_up_to_the_same(
    num_ranks: int, card: ModelCard, folders: dict[int, Path], expected: torch.Tensor
) -> None:
    def work(index: int, collective: ThreadRank) -> torch.Tensor:
        split = rank_split(card, Rank(index, num_ranks))
        place = RankPlace(split=split, collective=collective)
        decoder = Decoder.load(card, torch.float32, "cpu", place=place, adapters=ROOM)
        return logits_of(place_all(decoder, folders), batch_of(SLOTS))

    for logits in run_ranks(num_ranks, work):
        torch.testing.assert_close(logits, expected, **CLOSE)


def test_beside_quantized_matrices_an_adapter_adds_what_it_adds_to_plain_ones(
    card: ModelCard, folders: dict[int, Path]
) -> None:
    """Of one layer's first product: what lies behind it differs by the rounding of the base."""
    forms: list[Callable[[], Decoder]] = [
        lambda form=form: Decoder.load(  # type: ignore[misc]
            card, torch.float32, "cpu", adapters=ROOM, weights=form
        )
        for form in (WeightFormat.FULL, WeightFormat.INT8)
    ]
    shifts = []
    for load in forms:
        decoder = place_all(load(), folders)
        shifts.append(logits_of(decoder, batch_of(SLOTS)) - logits_of(decoder, batch_of(None)))
    full, int8 = shifts
    assert torch.corrcoef(torch.stack((full.flatten(), int8.flatten())))[0, 1] > 0.99
