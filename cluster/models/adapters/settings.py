"""What an adapter's adapter_config.json says (PEFT's format); anything else is refused by name."""

from __future__ import annotations

import functools
import math
from typing import Any, Final, TypeVar

import msgspec

from cluster.adapter import MAX_LORA_RANK
from cluster.errors import AdapterRefused, BadCheckpoint
from cluster.models.adapters.module_pattern import ModulePattern
from cluster.models.fields import Fields

T = TypeVar("T")
MAX_PATTERNS: Final = 1024
MAX_TARGETS: Final = 2048
"""Names: more than any model has matrices."""
_MAX_PATTERN_CHARS = 200
_MAX_CHOICE_CHARS = 2048
"""Of all patterns of a setting that are more than names: each is tried on each module."""
_SUPPORTED = {
    "peft_type",
    "r",
    "lora_alpha",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "target_modules",
}
_WITHOUT_EFFECT = {
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
    "task_type",
}
"""Of training, or said again by the tensors that are there. `bias` and `init_lora_weights` are
looked at by themselves."""
_CHANGES_BASE = ("pissa", "olora", "loftq", "corda")
"""Beginnings of `init_lora_weights` after which the base model's own matrices are others."""


class AdapterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Patterns are by module, as PEFT matches them: at the end of a module's name."""

    rank: int
    alpha: float
    uses_rslora: bool
    rank_pattern: dict[str, int]
    alpha_pattern: dict[str, float]
    targets: tuple[str, ...]
    """Names, or ends of names; empty: a pattern, or all, and the tensors say which."""

    def rank_of(self, module: str) -> int:
        """As the settings have it; the tensors have to agree."""
        return _matched(self.rank_pattern, module, self.rank)

    def scale_of(self, module: str) -> float:
        """What multiplies the module's product: alpha / r, or alpha / sqrt(r) (Kalajdzievski,
        2023)."""
        alpha, rank = _matched(self.alpha_pattern, module, self.alpha), self.rank_of(module)
        return alpha / math.sqrt(rank) if self.uses_rslora else alpha / rank

    @property
    def canonical(self) -> bytes:
        """What of it changes an answer, always in the same words."""
        return msgspec.json.encode(self, order="sorted")


def read_settings(config: dict[str, Any], where: str) -> AdapterSettings:
    """Raises AdapterRefused naming the first setting that is not supported, or wrong."""
    try:
        return _read(Fields(config, where), config)
    except BadCheckpoint as error:
        raise AdapterRefused(error.message) from error


def _read(fields: Fields, config: dict[str, Any]) -> AdapterSettings:
    _check_settings(fields, config)
    settings = AdapterSettings(
        rank=_rank(fields.integer("r"), "r"),
        alpha=fields.number("lora_alpha"),
        uses_rslora=fields.flag("use_rslora", False),
        rank_pattern={
            key: _rank(value, f"rank_pattern {key!r}")
            for key, value in _pattern(fields, "rank_pattern").items()
        },
        alpha_pattern=_alphas(_pattern(fields, "alpha_pattern")),
        targets=_targets(fields),
    )
    if not math.isfinite(settings.alpha):
        raise AdapterRefused(f"lora_alpha is {settings.alpha}")
    return settings


def _check_settings(fields: Fields, config: dict[str, Any]) -> None:
    if (kind := fields.text("peft_type", "LORA")) != "LORA":
        raise AdapterRefused(f"peft_type is {kind[:40]!r}; supported: LORA")
    if (bias := fields.text("bias", "none")) != "none":
        raise AdapterRefused(f"bias is {bias[:40]!r}; supported: none")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        raise AdapterRefused(
            f"init_lora_weights is {start[:40]!r}, which changes the base model's own matrices; "
            "save the adapter converted to plain LoRA"
        )
    for key in sorted(config.keys() - _SUPPORTED - _WITHOUT_EFFECT):
        if config[key]:  # off, empty and null ask for nothing
            raise AdapterRefused(f"{key[:60]} is set; adapters with it are not supported")


def _targets(fields: Fields) -> tuple[str, ...]:
    targets = fields.raw("target_modules")
    if targets is None or isinstance(targets, str):
        return ()
    names = fields.texts("target_modules")
    if len(names) > MAX_TARGETS:
        raise AdapterRefused(f"target_modules has {len(names)} names; allowed: {MAX_TARGETS}")
    return tuple(sorted(names))


def _pattern(fields: Fields, key: str) -> dict[str, Any]:
    section = fields.section(key)
    values = fields.raw(key) or {}
    if len(values) > MAX_PATTERNS:
        raise AdapterRefused(f"{key} has {len(values)} entries; allowed: {MAX_PATTERNS}")
    choice_chars = 0
    for pattern in values:
        if len(pattern) > _MAX_PATTERN_CHARS:
            raise AdapterRefused(
                f"{section.where} has a pattern of {len(pattern)} characters; allowed: "
                f"{_MAX_PATTERN_CHARS}"
            )
        try:
            choice_chars += 0 if _pattern_of(pattern).is_plain else len(pattern)
        except ValueError as error:
            raise AdapterRefused(f"{section.where} has {pattern[:60]!r}: {error}") from error
    if choice_chars > _MAX_CHOICE_CHARS:
        raise AdapterRefused(
            f"{section.where} has {choice_chars} characters in patterns that are no names; "
            f"allowed: {_MAX_CHOICE_CHARS}"
        )
    return dict(values)


@functools.lru_cache(4 * MAX_PATTERNS)
def _pattern_of(text: str) -> ModulePattern:
    return ModulePattern(text)


def _alphas(values: dict[str, Any]) -> dict[str, float]:
    for key, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise AdapterRefused(f"alpha_pattern {key[:60]!r} is {str(value)[:40]}; not a number")
    return {key: float(value) for key, value in values.items()}


def _rank(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_LORA_RANK:
        raise AdapterRefused(f"{name[:80]} is {str(value)[:40]}; supported: 1 to {MAX_LORA_RANK}")
    return value


def _matched(patterns: dict[str, T], module: str, default: T) -> T:
    for pattern, value in patterns.items():
        if _pattern_of(pattern).fits(module):
            return value
    return default
