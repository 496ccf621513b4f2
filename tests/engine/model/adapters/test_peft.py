"""Folders that PEFT itself wrote, against the weights that PEFT itself merged, in float32."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model

import engine.model.decoder
from cluster.models.card import ModelCard
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model.adapters.bank import AdapterRoom
from engine.model.adapters.reading import read_into
from engine.model.decoder import Decoder
from tests.adapter_files import word_of
from tests.engine.model.tiny_llama import (
    BLOCK_SIZE,
    ragged_batch,
    random_model,
    saved_card,
    tiny_config,
)
from tests.kernels.kernel_sets import cpu_set

# PEFT asks a model what transformers 5 will not answer any more.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
CLOSE = {"rtol": 3e-4, "atol": 5e-4}
"""Float32 sums in another order, as against transformers."""
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
CONFIGS = {
    1: LoraConfig(r=8, lora_alpha=16, target_modules=[*ATTENTION, *MLP]),
    2: LoraConfig(r=32, lora_alpha=16, use_rslora=True, target_modules=[*ATTENTION, *MLP]),
    3: LoraConfig(r=8, lora_alpha=4, target_modules=ATTENTION),
    4: LoraConfig(r=32, lora_alpha=32, target_modules=MLP, rank_pattern={"down_proj": 12}),
    5: LoraConfig(r=256, lora_alpha=128, target_modules=[*ATTENTION, *MLP]),
}
"""By slot."""
STARTS = {1: 90, 2: 0, 3: 40, 4: 50, 5: 100}
ROOM = AdapterRoom(num_lora_ranks=360, num_slots=6)
LENGTHS = {0: 5, 1: 14, 2: 9, 3: 3, 4: 7, 5: 6}
"""Tokens of the sequence of each slot."""


@dataclass(frozen=True, slots=True)
class Made:
    """By PEFT: a folder for each slot, and what the merged model says."""

    card: ModelCard
    folders: dict[int, Path]
    logits: torch.Tensor  # [all tokens, vocab_size], slot after slot


def prompt(slot: int) -> list[int]:
    made = torch.Generator().manual_seed(slot)
    return torch.randint(0, 61, (LENGTHS[slot],), generator=made).tolist()


def merged_by_peft(slot: int, folder: Path) -> transformers.LlamaForCausalLM:
    """Saves the adapter, then adds it to the weights."""
    model = random_model(tiny_config())
    if not slot:
        return model
    config = replace(CONFIGS[slot], task_type="CAUSAL_LM", init_lora_weights=False)
    torch.manual_seed(slot)
    adapted = get_peft_model(model, config)
    adapted.save_pretrained(folder)
    return adapted.merge_and_unload().eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("peft")
    card = saved_card(random_model(tiny_config()), root / "base")
    folders = {slot: root / "adapters" / f"a{slot}" for slot in CONFIGS}
    rows = []
    for slot in LENGTHS:
        model = merged_by_peft(slot, folders.get(slot, root))
        with torch.inference_mode():
            rows.append(model(torch.tensor([prompt(slot)])).logits[0])
    return Made(card, folders, torch.cat(rows))


def logits_of_one_batch(decoder: Decoder) -> torch.Tensor:
    """A sequence of each slot, side by side."""
    chunks = [(prompt(slot), 0, [4 * slot + i for i in range(4)]) for slot in LENGTHS]
    rows = [slot for slot, length in LENGTHS.items() for _ in range(length)]
    batch = replace(ragged_batch(chunks), adapters=torch.tensor(rows, dtype=torch.int32))
    layout = KvLayout.of_part(decoder.split, BLOCK_SIZE, decoder.dtype)
    with torch.inference_mode():
        return decoder.forward(batch, KvPool(layout, 4 * len(LENGTHS), "cpu")).clone()


@pytest.mark.parametrize("name", ["reference", "native"])
def test_logits_are_those_of_the_weights_that_peft_merged(
    name: str, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.model.decoder, "kernels_for", lambda device, folder: cpu_set(name))
    decoder = Decoder.load(made.card, torch.float32, "cpu", adapters=ROOM)
    bank = decoder.bank
    assert bank is not None
    for slot, folder in made.folders.items():
        ranks = read_into(bank, word_of(folder, bank.config, slot=slot, start=STARTS[slot]))
        bank.place(slot, STARTS[slot], ranks)
    logits = logits_of_one_batch(decoder)
    torch.testing.assert_close(logits, made.logits, **CLOSE)


def test_each_adapter_changes_what_the_model_says(made: Made) -> None:
    """Or its equality would say nothing."""
    with torch.inference_mode():
        model = random_model(tiny_config())
        base = torch.cat([model(torch.tensor([prompt(slot)])).logits[0] for slot in LENGTHS])
    moved = (made.logits - base).abs().amax(dim=1).split(list(LENGTHS.values()))
    assert moved[0].max() == 0
    assert all(rows.min() > 0.1 for rows in moved[1:])
