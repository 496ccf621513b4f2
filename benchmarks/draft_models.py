"""A target and a draft model that is like it, made of SmolLM2: there is no smaller SmolLM2.

The target is SmolLM2 whose later layers say less than they were trained to; the draft has its first
layers, and the same ends. How often they agree is the damping's doing, and what a draft costs that
of so many layers and a head of 49,152 tokens: figures are of the machinery, not of a family.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
import transformers

from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from engine.contract.spec import DraftSpec
from engine.offline.replica import OfflineSetup, offline_spec
from engine.process.memory_habits import keep_freed_memory, spare_loaded_objects
from engine.process.threads import use_threads_to_load, use_threads_to_serve
from engine.runner.model_runner import Replica
from engine.runner.replica import load_replica


@dataclass(frozen=True, slots=True)
class DraftPair:
    """Folders of safetensors."""

    target: Path
    draft: Path


def made_of_smollm2(folder: Path, *, num_layers: int, damping: float) -> DraftPair:
    """`num_layers` of the draft; what the target's layers after them add is multiplied by
    `damping`."""
    card = ModelStore().resolve("smollm2")
    source = {"pretrained_model_name_or_path": card.metadata_path.parent}
    file = {"gguf_file": card.metadata_path.name}
    transformers.utils.logging.disable_progress_bar()
    model = transformers.LlamaForCausalLM.from_pretrained(**source, **file, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source, **file)
    for layer in model.model.layers[num_layers:]:
        for matrix in (layer.self_attn.o_proj, layer.mlp.down_proj):
            matrix.weight.data *= damping
    pair = DraftPair(folder / "target", folder / "draft")
    for place, kept in ((pair.target, len(model.model.layers)), (pair.draft, num_layers)):
        _first_layers(model, kept).save_pretrained(place)
        tokenizer.save_pretrained(place)
    return pair


def _first_layers(
    model: transformers.LlamaForCausalLM, num_layers: int
) -> transformers.LlamaForCausalLM:
    values = {**model.config.to_dict(), "num_hidden_layers": num_layers}
    values.pop("quantization_config", None)  # of the file that it was read from
    part = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values))
    part.load_state_dict(model.state_dict(), strict=False)
    return part.to(torch.bfloat16)


def load_pair(target: Path, draft: Path, *, num_threads: int) -> Replica:
    """As an engine process does it, the draft in the same precision."""
    setup = OfflineSetup(model=str(target), num_threads=num_threads)
    spec = offline_spec(setup)
    card: ModelCard = ModelStore().resolve(str(draft))
    spec = msgspec.structs.replace(
        spec, draft=DraftSpec(card=card, dtype=spec.dtype, weights=spec.weights)
    )
    use_threads_to_load(num_threads)
    keep_freed_memory()
    replica = load_replica(spec, lambda phase, fraction: None)
    use_threads_to_serve(replica.kv.device)
    spare_loaded_objects()
    return replica
