"""EAGLE-3 checkpoints of a few thousand parameters: random ones, and one that is made to be right.

The good one needs no training. Its attention looks at itself alone, by keys that are queries, so
that it says its last token's embedding again; and its LM head is solved for what the target says
after each token by itself. Of a target whose layers say little that is mostly what it will say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from cluster.models.files.weights_digest import DigestCache
from cluster.models.heads.card import HeadsCard
from cluster.models.heads.folder import heads_of_folder

Tensors = dict[str, torch.Tensor]
LAYERS_READ = (1, 2, 3)
"""As the checkpoints count them by what they give: 0, 1, 2."""
_SHARP = 4.0


def eagle_config(target: transformers.LlamaConfig, **changes: Any) -> dict[str, Any]:
    """Heads of 32 over the target's width, as the authors' layout has it."""
    values: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "vocab_size": target.vocab_size,
        "draft_vocab_size": target.vocab_size,
        "hidden_size": target.hidden_size,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": target.hidden_size // 32,
        "num_key_value_heads": target.hidden_size // 32,
        "head_dim": 32,
        "rms_norm_eps": target.rms_norm_eps,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [n - 1 for n in LAYERS_READ]},
    }
    return values | changes


def random_tensors(config: dict[str, Any], prefix: str = "midlayer.") -> Tensors:
    """All that must be there, with an offset for every token that may be guessed."""
    torch.manual_seed(3)
    hidden, inner, size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    shapes = {
        "fc.weight": (hidden, len(LAYERS_READ) * hidden),
        f"{prefix}self_attn.q_proj.weight": (heads * size, 2 * hidden),
        f"{prefix}self_attn.k_proj.weight": (kv_heads * size, 2 * hidden),
        f"{prefix}self_attn.v_proj.weight": (kv_heads * size, 2 * hidden),
        f"{prefix}self_attn.o_proj.weight": (hidden, heads * size),
        f"{prefix}mlp.gate_proj.weight": (inner, hidden),
        f"{prefix}mlp.up_proj.weight": (inner, hidden),
        f"{prefix}mlp.down_proj.weight": (hidden, inner),
        "lm_head.weight": (config["draft_vocab_size"], hidden),
    }
    tensors = {name: 0.2 * torch.randn(shape) for name, shape in shapes.items()}
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        tensors[f"{prefix}{name}.weight"] = torch.rand(hidden) + 0.5
    tensors["norm.weight"] = torch.rand(hidden) + 0.5
    if config["draft_vocab_size"] < config["vocab_size"]:
        ids = torch.randperm(config["vocab_size"])[: config["draft_vocab_size"]].sort().values
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.zeros(config["vocab_size"], dtype=torch.bool).index_fill(
            0, ids, True
        )
    return tensors


def good_tensors(target: transformers.LlamaForCausalLM, config: dict[str, Any]) -> Tensors:
    """See above; whatever the states say is added, and says little."""
    hidden, tensors = target.config.hidden_size, random_tensors(config)
    itself = torch.cat((torch.eye(hidden), torch.zeros(hidden, hidden)), dim=1)
    tensors["fc.weight"] *= 0.01
    for name, scale in (("q", _SHARP), ("k", _SHARP), ("v", 1.0)):
        tensors[f"midlayer.self_attn.{name}_proj.weight"] = scale * itself
    tensors["midlayer.self_attn.o_proj.weight"] = 20.0 * torch.eye(hidden)
    tensors["midlayer.mlp.down_proj.weight"] *= 0.0
    for name in list(tensors):
        if "norm" in name:
            tensors[name] = torch.ones(hidden)
    with torch.inference_mode():
        tokens = torch.arange(target.config.vocab_size)
        said = target(tokens[:, None]).logits[:, -1]  # [vocab, vocab]
        embedded = target.get_input_embeddings()(tokens)
        normed = embedded / embedded.pow(2).mean(dim=-1, keepdim=True).sqrt()
        tensors["lm_head.weight"] = (torch.linalg.pinv(normed) @ said).t().contiguous()
    return tensors


def saved_heads(tensors: Tensors, config: dict[str, Any], folder: Path) -> Path:
    """The folder."""
    folder.mkdir(parents=True, exist_ok=True)
    held = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    save_file(held, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def heads_card(folder: Path) -> HeadsCard:
    """As the model store would make it."""
    digests = DigestCache(folder / "digests")
    card = heads_of_folder(folder, name="eagle", source=str(folder), digests=digests)
    assert card is not None
    return card
