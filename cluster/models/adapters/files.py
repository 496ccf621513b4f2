"""An adapter's two files, read once: what is looked at is what is used.

opened: settings and the header of the tensors are known, and fit for the model
  -> its tensors are read, a chunk at a time -> its digest is known, of just these bytes

Nothing is trusted: paths are resolved and lie under one root, sizes are bounded before they are
read, and only safetensors are opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster.adapter import DIGEST_CHARS, MAX_LORA_RANK
from cluster.errors import AdapterRefused, BadCheckpoint
from cluster.models.adapters.plain_file import (
    PlainFile,
    Progressed,
    instead_of,
    plain_file,
    top_of,
    unwatched,
)
from cluster.models.adapters.settings import AdapterSettings, read_settings
from cluster.models.adapters.targets import values_per_lora_rank
from cluster.models.adapters.tensor_file import TensorFile, TensorRows
from cluster.models.adapters.tensors import AdaptedModule, adapted_modules, largest_rank
from cluster.models.card import DecoderConfig
from cluster.models.files.json_file import parse_json_object
from cluster.models.model_split import ModelSplit

SETTINGS: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
MAX_SETTINGS_BYTES: Final = 1 << 20
_HEADER_ROOM = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFiles:
    """What was read whole, and is fit for a model."""

    settings: AdapterSettings
    modules: dict[str, AdaptedModule]
    digest: str
    """Hex, of settings and weights."""

    @property
    def lora_rank(self) -> int:
        """The largest of its modules."""
        return largest_rank(self.modules)


class OpenAdapter:
    """One that is fit for a model, as far as its header says."""

    def __init__(self, settings: AdapterSettings, config: DecoderConfig, file: TensorFile) -> None:
        """`file`: as it was opened. Raises AdapterRefused and AdapterUnread."""
        self._settings, self._file = settings, file
        told = settings.canonical
        self._sha256 = hashlib.sha256(len(told).to_bytes(8, "little") + told)
        shapes = file.read_header(self._sha256.update)
        self.modules = adapted_modules(shapes, settings, config)
        self._is_read = False

    @property
    def lora_rank(self) -> int:
        """The largest of its modules."""
        return largest_rank(self.modules)

    def rows(self) -> Iterator[TensorRows]:
        """All rows of all tensors, once, in the order of the file. Raises AdapterRefused and
        AdapterUnread."""
        yield from self._file.rows(self._sha256.update)
        self._is_read = True

    def read(self) -> AdapterFiles:
        """What it is, once its rows were taken, all of them."""
        assert self._is_read, "a digest is of all bytes"
        digest = self._sha256.hexdigest()[:DIGEST_CHARS]
        return AdapterFiles(settings=self._settings, modules=self.modules, digest=digest)


def adapter_folder(root: Path, asked: str) -> Path:
    """The folder `asked`, under the root or relative to it, without any link left in it. Raises
    AdapterRefused for one that lies elsewhere, or is none, and AdapterUnread."""
    top = top_of(root)
    try:
        folder = (top / asked).resolve(strict=True)
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except (OSError, RuntimeError, ValueError) as error:
        why = f"there is no folder {asked[:200]!r} with an adapter"
        raise instead_of(error, asked[:200], if_amiss=why) from error
    if top not in folder.parents or not is_folder:
        raise AdapterRefused(
            f"{asked[:200]!r} is no folder under the one that adapters are loaded from"
        )
    return folder


def read_adapter(
    root: Path, folder: Path, config: DecoderConfig, *, progressed: Progressed = unwatched
) -> AdapterFiles:
    """Reads and checks all of it, and keeps none of its numbers. Raises as `open_adapter`."""
    with open_adapter(root, folder, config, progressed=progressed) as adapter:
        for _ in adapter.rows():
            pass
        return adapter.read()


@contextlib.contextmanager
def open_adapter(
    root: Path, folder: Path, config: DecoderConfig, *, progressed: Progressed = unwatched
) -> Iterator[OpenAdapter]:
    """To read it a chunk at a time. Raises AdapterRefused for one that is not fit for the model,
    and AdapterUnread where storage fails, or the files change meanwhile."""
    limit = values_per_lora_rank(ModelSplit(config=config)) * MAX_LORA_RANK * 4 + _HEADER_ROOM
    settings = _settings(root, folder, progressed)
    with _opened(root, folder / WEIGHTS, limit, progressed) as file:
        yield OpenAdapter(settings, config, TensorFile(file, f"{folder.name}/{WEIGHTS}"))


def _opened(
    root: Path, path: Path, max_bytes: int, progressed: Progressed
) -> contextlib.AbstractContextManager[PlainFile]:
    lacking = f"{path.parent.name} lacks {path.name}; only {WEIGHTS} is opened, beside its settings"
    return plain_file(root, path, max_bytes=max_bytes, if_absent=lacking, progressed=progressed)


def _settings(root: Path, folder: Path, progressed: Progressed) -> AdapterSettings:
    with _opened(root, folder / SETTINGS, MAX_SETTINGS_BYTES, progressed) as file:
        raw = file.take(file.num_bytes)
        file.end()
    try:
        return read_settings(parse_json_object(raw, SETTINGS), f"{folder.name}/{SETTINGS}")
    except BadCheckpoint as error:
        raise AdapterRefused(error.message) from error
