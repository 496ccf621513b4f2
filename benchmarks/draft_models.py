"""A target and a draft model, or a head, that is like it, made of SmolLM2: there is no smaller one.

The target is SmolLM2 whose later layers say less than they were trained to; the draft has its first
layers, and the same ends. How often they agree is the damping's doing, and what a draft costs that
of so many layers and a head of 49,152 tokens: figures are of the machinery, not of a family.

The EAGLE-3 head is not trained either. It attends to itself alone and says its last token's
embedding through the target's own LM head, which is what a target says whose layers add hardly
anything. Such a target repeats its last token; what it takes to be right about that is what it
would take anywhere.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
import transformers
from safetensors.torch import save_file

from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from engine.contract.spec import DraftSpec, HeadsSpec
from engine.offline.replica import OfflineSetup, offline_spec
from engine.process.memory_habits import keep_freed_memory, spare_loaded_objects
from engine.process.threads import use_threads_to_load, use_threads_to_serve
from engine.runner.model_runner import Replica
from engine.runner.replica import load_replica

_HEAD_DIM = 64


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


def with_a_head(folder: Path, *, damping: float) -> DraftPair:
    """A target whose layers add `damping` of what they were trained to, and a head of full size."""
    pair = made_of_smollm2(folder, num_layers=0, damping=damping)
    target = transformers.LlamaForCausalLM.from_pretrained(pair.target, dtype=torch.float32)
    shape = target.config
    width, inner = shape.hidden_size, shape.intermediate_size
    itself = torch.cat((torch.eye(width), torch.zeros(width, width)), dim=1)
    tensors = {
        "fc.weight": torch.zeros(width, 3 * width),
        "midlayer.self_attn.o_proj.weight": torch.eye(width),
        "midlayer.mlp.gate_proj.weight": torch.zeros(inner, width),
        "midlayer.mlp.up_proj.weight": torch.zeros(inner, width),
        "midlayer.mlp.down_proj.weight": torch.zeros(width, inner),
        "norm.weight": target.model.norm.weight.detach(),
        "lm_head.weight": target.lm_head.weight.detach(),
    }
    for name, scale in (("q", 4.0), ("k", 4.0), ("v", 1.0)):
        tensors[f"midlayer.self_attn.{name}_proj.weight"] = scale * itself
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        tensors[f"midlayer.{name}.weight"] = torch.ones(width)
    shutil.rmtree(pair.draft)
    pair.draft.mkdir()
    held = {name: tensor.to(torch.bfloat16).clone() for name, tensor in tensors.items()}
    save_file(held, pair.draft / "model.safetensors")
    values = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "vocab_size": shape.vocab_size,
        "draft_vocab_size": shape.vocab_size,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": 1,
        "num_attention_heads": width // _HEAD_DIM,
        "head_dim": _HEAD_DIM,
        "rms_norm_eps": shape.rms_norm_eps,
    }
    (pair.draft / "config.json").write_text(json.dumps(values))
    return pair


def load_pair(target: Path, draft: Path, *, num_threads: int) -> Replica:
    """As an engine process does it, the draft model or the head in the same precision."""
    setup = OfflineSetup(model=str(target), num_threads=num_threads)
    spec = offline_spec(setup)
    heads = ModelStore().resolve_heads(str(draft))
    if heads is not None:
        spec = msgspec.structs.replace(spec, drafter=HeadsSpec(card=heads))
    else:
        card: ModelCard = ModelStore().resolve(str(draft))
        made = DraftSpec(card=card, dtype=spec.dtype, weights=spec.weights)
        spec = msgspec.structs.replace(spec, drafter=made)
    use_threads_to_load(num_threads)
    keep_freed_memory()
    replica = load_replica(spec, lambda phase, fraction: None)
    use_threads_to_serve(replica.kv.device)
    spare_loaded_objects()
    return replica
