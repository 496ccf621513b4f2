"""An adapter's two files, read once: what is looked at is what is used.

Nothing is trusted: paths are resolved and lie under one root, sizes are bounded before they are
read, and only safetensors are opened.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from cluster.adapter import DIGEST_CHARS, MAX_LORA_RANK
from cluster.errors import AdapterRefused, AdapterUnread, BadCheckpoint, SplitserveError
from cluster.models.adapters.settings import AdapterSettings, read_settings
from cluster.models.adapters.targets import values_per_lora_rank
from cluster.models.adapters.tensors import AdaptedModule, adapted_modules, header_of
from cluster.models.card import DecoderConfig
from cluster.models.files.json_file import parse_json_object
from cluster.models.model_split import ModelSplit

SETTINGS: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
MAX_SETTINGS_BYTES: Final = 1 << 20
_HEADER_ROOM = 16 << 20
_CHUNK_BYTES = 8 << 20
_AMISS = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG))
"""What lies there is wrong; all other errors of storage may pass."""

Progressed = Callable[[], None]
"""Is called after each part of the work; ends it by raising."""


def unwatched() -> None:
    """Of a reading that nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFiles:
    """Whole, and fit for a model."""

    weights: bytes
    settings: AdapterSettings
    modules: dict[str, AdaptedModule]
    digest: str
    """Hex, of settings and weights."""

    @property
    def lora_rank(self) -> int:
        """The largest of its modules."""
        return max(module.rank for module in self.modules.values())


def adapter_folder(root: Path, asked: str) -> Path:
    """The folder `asked`, under the root or relative to it, without any link left in it. Raises
    AdapterRefused for one that lies elsewhere, or is none, and AdapterUnread."""
    top = _top(root)
    try:
        folder = (top / asked).resolve(strict=True)
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except (OSError, RuntimeError, ValueError) as error:
        why = f"there is no folder {asked[:200]!r} with an adapter"
        raise _after(error, why, asked[:200]) from error
    if top not in folder.parents or not is_folder:
        raise AdapterRefused(
            f"{asked[:200]!r} is no folder under the one that adapters are loaded from"
        )
    return folder


def read_adapter(
    root: Path, folder: Path, config: DecoderConfig, *, progressed: Progressed = unwatched
) -> AdapterFiles:
    """Reads and checks all of it. Raises AdapterRefused, and AdapterUnread where storage fails."""
    limit = values_per_lora_rank(ModelSplit(config=config)) * MAX_LORA_RANK * 4 + _HEADER_ROOM
    settings = read_settings(
        _parsed(_read(root, folder / SETTINGS, MAX_SETTINGS_BYTES, progressed)),
        f"{folder.name}/{SETTINGS}",
    )
    weights = _read(root, folder / WEIGHTS, limit, progressed)
    shapes = header_of(weights, f"{folder.name}/{WEIGHTS}")
    return AdapterFiles(
        weights=weights,
        settings=settings,
        modules=adapted_modules(shapes, settings, config),
        digest=_digest(settings, weights),
    )


def _digest(settings: AdapterSettings, weights: bytes) -> str:
    told = settings.canonical
    digest = hashlib.sha256(len(told).to_bytes(8, "little") + told)
    digest.update(weights)
    return digest.hexdigest()[:DIGEST_CHARS]


def _parsed(raw: bytes) -> dict[str, object]:
    try:
        return parse_json_object(raw, SETTINGS)
    except BadCheckpoint as error:
        raise AdapterRefused(error.message) from error


def _read(root: Path, path: Path, max_bytes: int, progressed: Progressed) -> bytes:
    """A plain file that lies, when all links are followed, under the root."""
    top = _top(root)
    try:
        real = path.resolve(strict=True)
        is_under = top in real.parents
        if not (is_under and stat.S_ISREG(real.stat().st_mode)):
            raise AdapterRefused(f"{path.name} leads out of the folder of adapters")
        with real.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise AdapterRefused(f"{path.name} has {size:,} bytes; allowed: {max_bytes:,}")
            raw = _read_whole(file, max_bytes + 1, progressed)
    except (OSError, RuntimeError) as error:
        why = f"{path.parent.name} lacks {path.name}; only {WEIGHTS} is opened, beside its settings"
        raise _after(error, why, f"{path.parent.name}/{path.name}") from error
    if len(raw) > max_bytes:
        raise AdapterRefused(f"{path.name} grows while it is read; allowed: {max_bytes:,} bytes")
    return raw


def _top(root: Path) -> Path:
    """Without any link left in it. A root that is not there may be mounted again."""
    try:
        return root.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise AdapterUnread(f"the folder of adapters cannot be read now: {error}") from error


def _after(error: Exception, why_refused: str, what: str) -> SplitserveError:
    """What is raised in its place: a call that storage has failed may be answered another time."""
    if isinstance(error, OSError) and error.errno not in _AMISS:
        return AdapterUnread(f"{what} cannot be read now: {error.strerror or error}")
    return AdapterRefused(why_refused)


def _read_whole(file: BinaryIO, most_bytes: int, progressed: Progressed) -> bytes:
    chunks: list[bytes] = []
    left = most_bytes
    while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
        chunks.append(chunk)
        left -= len(chunk)
        progressed()
    return b"".join(chunks)
