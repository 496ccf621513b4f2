"""The tensors of an adapter's file, each of which has to land in a matrix of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cluster.errors import AdapterRefused, BadCheckpoint, UnsupportedModel
from cluster.models.adapters.settings import AdapterSettings
from cluster.models.adapters.targets import adapter_targets
from cluster.models.card import DecoderConfig
from cluster.models.fields import Fields
from cluster.models.files.json_file import parse_json_object
from cluster.models.hf.safetensors_header import entry_of

_PREFIX: Final = "base_model.model."
_DOWN: Final = ".lora_A.weight"
_UP: Final = ".lora_B.weight"
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterTensor:
    """As a header tells of it."""

    dtype: str
    """As torch names it."""
    shape: tuple[int, ...]
    begin: int
    """Its first byte behind the header, and the one behind its last."""
    end: int

    @property
    def num_bytes(self) -> int:
        """That its values take."""
        return math.prod(self.shape) * _VALUE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedModule:
    """What an adapter has for one matrix."""

    rank: int
    scale: float

    @staticmethod
    def down_name(module: str) -> str:
        """The tensor [rank, in] in the file."""
        return f"{_PREFIX}{module}{_DOWN}"

    @staticmethod
    def up_name(module: str) -> str:
        """The tensor [out, rank]."""
        return f"{_PREFIX}{module}{_UP}"


def tensors_of(header: bytes, data_bytes: int, where: str) -> dict[str, AdapterTensor]:
    """By name; `data_bytes` are behind the header. Raises AdapterRefused."""
    try:
        values = parse_json_object(header, where)
        sections = Fields(values, where)
        return {
            name: _tensor_of(sections.section(name), data_bytes)
            for name in values
            if name != "__metadata__"
        }
    except (BadCheckpoint, UnsupportedModel) as error:
        raise AdapterRefused(error.message) from error


def largest_rank(modules: Mapping[str, AdaptedModule]) -> int:
    """LoRA ranks that an adapter takes of the stacks."""
    return max(module.rank for module in modules.values())


def adapted_modules(
    shapes: Mapping[str, tuple[int, ...]], settings: AdapterSettings, config: DecoderConfig
) -> dict[str, AdaptedModule]:
    """By module. Raises AdapterRefused naming the first tensor that has no place, lacks its other
    half or has another shape than settings and model say, and the first target without tensors."""
    targets = adapter_targets(config)
    found: dict[str, AdaptedModule] = {}
    for name in sorted(shapes):
        module = _module_of(name)
        if module not in targets:
            raise AdapterRefused(
                f"tensor {name[:200]} has no place in this model: adapters may add to "
                "q, k, v and o_proj of attention and to gate, up and down_proj of plain "
                "feed-forwards, not to experts, latent attention, embeddings or heads"
            )
        if module not in found:
            _check_is_target(module, settings)
            found[module] = AdaptedModule(
                rank=settings.rank_of(module), scale=settings.scale_of(module)
            )
        rank = found[module].rank
        outputs, inputs = targets[module].shape
        expected = (rank, inputs) if name.endswith(_DOWN) else (outputs, rank)
        if shapes[name] != expected:
            raise AdapterRefused(f"tensor {name} has shape {shapes[name]}; needed: {expected}")
        other = AdaptedModule.up_name if name.endswith(_DOWN) else AdaptedModule.down_name
        if other(module) not in shapes:
            raise AdapterRefused(f"tensor {other(module)} is missing")
    _check_targets(found, settings)
    return found


def _module_of(name: str) -> str:
    """Raises AdapterRefused for a tensor that is neither half of a LoRA pair."""
    for end in (_DOWN, _UP):
        if name.startswith(_PREFIX) and name.endswith(end):
            return name.removeprefix(_PREFIX).removesuffix(end)
    raise AdapterRefused(
        f"tensor {name[:200]} is not supported; supported: {_PREFIX}<module>{_DOWN} and {_UP}"
    )


def _is_of(module: str, target: str) -> bool:
    return module == target or module.endswith(f".{target}")


def _check_is_target(module: str, settings: AdapterSettings) -> None:
    if settings.targets and not any(_is_of(module, target) for target in settings.targets):
        raise AdapterRefused(f"there are tensors of {module}, which target_modules does not name")


def _check_targets(found: Mapping[str, AdaptedModule], settings: AdapterSettings) -> None:
    if not found:
        raise AdapterRefused("the file has no tensors")
    for target in settings.targets:
        if not any(_is_of(module, target) for module in found):
            raise AdapterRefused(
                f"target_modules names {target[:100]!r}, and there is no tensor of it"
            )


def _tensor_of(entry: Fields, data_bytes: int) -> AdapterTensor:
    dtype, begin, end = entry_of(entry, data_bytes, _DTYPES)
    return AdapterTensor(dtype=dtype, shape=tuple(entry.integers("shape")), begin=begin, end=end)
