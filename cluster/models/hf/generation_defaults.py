"""How a checkpoint wants to be sampled: the part of generation_config.json that says so.

The fields that vLLM takes, and as it takes them."""

from __future__ import annotations

import math

import msgspec

from cluster.errors import BadCheckpoint
from cluster.models.card import CheckpointFormat, ModelCard
from cluster.models.files.json_file import read_optional_json


class GenerationDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What counts where a client names nothing; None: the server's own default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None

    @property
    def sampling(self) -> dict[str, float]:
        """What is stated for fields of `SamplingParams`, by their names."""
        stated = msgspec.structs.asdict(self)
        del stated["max_new_tokens"]
        return {name: value for name, value in stated.items() if value is not None}


_FIELDS = GenerationDefaults.__struct_fields__


def generation_defaults_of(card: ModelCard) -> GenerationDefaults:
    """None of them for a GGUF file, which has no place for them. Raises BadCheckpoint."""
    if card.format is CheckpointFormat.GGUF:
        return GenerationDefaults()
    path = card.metadata_path / "generation_config.json"
    stated = read_optional_json(path)
    found = {name: stated[name] for name in _FIELDS if stated.get(name) is not None}
    for name, value in found.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise BadCheckpoint(f"{path}: {name} is {value!r}; it must be a number")
    return msgspec.convert(found, GenerationDefaults, strict=False)
