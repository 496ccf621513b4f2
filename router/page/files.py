"""The page's own files, as they lie beside this module: read once, served from memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

FOLDER = Path(__file__).with_name("static")
INDEX = "/index.html"
_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """As it is sent."""

    body: bytes
    content_type: bytes
    tag: bytes
    """Of its ETag: another one where the bytes are others."""


def page_files(folder: Path = FOLDER) -> Mapping[str, PageFile]:
    """By path, such as /page.js; what is of no kind that the page needs is left out."""
    found = {
        f"/{path.name}": _read(path) for path in sorted(folder.iterdir()) if path.suffix in _TYPES
    }
    return MappingProxyType(found | {"/": found[INDEX]})


def _read(path: Path) -> PageFile:
    body = path.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'.encode()
    return PageFile(body, _TYPES[path.suffix], tag)
