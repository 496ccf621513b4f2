"""A tar.gz of small files and a manifest: bounded, redacted, and there as a whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cli.json_output import as_json
from cluster.errors import ConfigError
from cluster.redaction import Redactor

MAX_FILE_BYTES = 4 * 2**20
MAX_BUNDLE_BYTES = 64 * 2**20
"""Unpacked."""
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A line of the manifest."""

    name: str
    bytes: int
    sha256: str
    took_s: float
    is_cut: bool
    """Its beginning is missing: there was more than a file may have."""


@dataclass(frozen=True, slots=True)
class MissingPart:
    """What is not in it, and why."""

    name: str
    why: str


@dataclass(slots=True)
class Archive:
    """Files by name, as they will be packed."""

    redactor: Redactor
    contents: dict[str, bytes] = field(default_factory=dict)
    files: list[PackedFile] = field(default_factory=list)
    missing: list[MissingPart] = field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        """Unpacked."""
        return sum(map(len, self.contents.values()))

    def add(self, name: str, content: object, took_s: float = 0.0) -> None:
        """Text as it is, else JSON; redacted before it is cut, or no pattern might know it."""
        whole = self._redacted(content).encode(errors="replace")
        kept = whole[-MAX_FILE_BYTES:]
        if self.num_bytes + len(kept) > MAX_BUNDLE_BYTES:
            self.miss(name, f"the bundle has {MAX_BUNDLE_BYTES >> 20} MiB already")
            return
        self.contents[name] = kept
        digest = hashlib.sha256(kept).hexdigest()
        cut = len(kept) < len(whole)
        self.files.append(PackedFile(name, len(kept), digest, round(took_s, 3), cut))

    def _redacted(self, content: object) -> str:
        if isinstance(content, str):
            return self.redactor.text(content)
        return self.redactor.known(as_json(self.redactor.data(json.loads(as_json(content)))))

    def miss(self, name: str, why: str) -> None:
        """Something could not be had."""
        self.missing.append(MissingPart(name, self.redactor.text(why)))

    def write(self, path: Path, about: Mapping[str, Any]) -> None:
        """For its owner's eyes; never over a file that is there. Raises ConfigError."""
        manifest = {
            **about,
            "files": [asdict(each) for each in sorted(self.files, key=lambda file: file.name)],
            "missing": [asdict(each) for each in self.missing],
        }
        contents = {MANIFEST: as_json(manifest).encode(), **dict(sorted(self.contents.items()))}
        try:
            with tempfile.NamedTemporaryFile(dir=path.absolute().parent, prefix=".bundle-") as new:
                _pack(new.name, path.name.removesuffix(".gz").removesuffix(".tar"), contents)
                os.link(new.name, path)
        except FileExistsError as cause:
            raise ConfigError(f"{path} is there already; name another file") from cause
        except OSError as cause:
            raise ConfigError(f"{path} cannot be written: {cause.strerror}") from cause


def _pack(path: str, folder: str, contents: Mapping[str, bytes]) -> None:
    """All in one folder, which bears the bundle's name."""
    with tarfile.open(path, "w:gz") as packed:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size, info.mode = len(content), 0o600
            packed.addfile(info, io.BytesIO(content))
