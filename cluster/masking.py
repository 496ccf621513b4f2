"""Secrets do not leave: what a command shows of a process's settings, or puts into a file for
others, goes through a `Mask`.

    by name     join_token=..., "password": "...", HF_TOKEN, Authorization: ...
    by shape    user:password@ in a URL, sk-... and hf_... keys, bearer tokens, private keys in PEM
    by value    what this process knows to be secret, wherever and however it is written
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

MASKED = "***"
MIN_SECRET_CHARS = 6
"""Of values that are masked wherever they stand: a shorter one would take words apart."""
_NAME = (
    r"(?:token(?![a-z]|_ms|_id|_count)|secret(?![a-z])|passw(?:or)?d|passphrase|api[_-]?key"
    r"|authorization|credential)"
)
_IS_SECRET = re.compile(rf"{_NAME}|private_?key|access_?key", re.IGNORECASE)
_NAMES_A_PLACE = re.compile(r"(?:_|-)(?:files?|path|dir|folder|url)$", re.IGNORECASE)
_SHAPES = (
    (
        re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL),
        MASKED,
    ),
    (re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s\"'<>]*@"), rf"\1{MASKED}@"),
    (re.compile(r"\b(sk-|hf_)[A-Za-z0-9_-]{8,}"), rf"\1{MASKED}"),
    (re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), rf"\1\2{MASKED}"),
    (
        re.compile(
            rf"([\w.-]*{_NAME}[\w-]*(?<!_file)(?<!_path)\\?[\"']?\s*[=:]\s*)"
            r"(?:(\\?\")(?:[^\"\\]|\\(?!\").)*\\?\"|(')[^']*'|[^\s,;&\"'}\]]+)",
            re.IGNORECASE,
        ),
        rf"\1\2\3{MASKED}\2\3",
    ),
)


class Mask:
    """For texts and for data; knows the secrets that it was made with."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
        written = {form for secret in known for form in _forms(secret)}
        longest_first = sorted(written, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if written else None

    def known(self, text: str) -> str:
        """The same without what is known to be secret, by value alone."""
        return text if self._known is None else self._known.sub(MASKED, text)

    def text(self, text: str) -> str:
        """The same without secrets."""
        text = self.known(text)
        for shape, masked in _SHAPES:
            text = shape.sub(masked, text)
        return text

    def data(self, value: Any) -> Any:
        """Of what JSON can hold: what a secret's name says is masked whole, text as text."""
        if isinstance(value, dict):
            return {key: self._named(str(key), item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _named(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and value and is_secret_name(name):
            return MASKED
        return self.data(value)


def is_secret_name(name: str) -> bool:
    """What is called so is a secret, and no file that holds one."""
    return bool(_IS_SECRET.search(name)) and not _NAMES_A_PLACE.search(name)


def secrets_of(environ: Mapping[str, str], files: Iterable[Path] = ()) -> Iterator[str]:
    """What these variables and files say that nobody else may read."""
    for name, value in environ.items():
        if is_secret_name(name):
            yield value
        for userinfo in re.findall(r"://([^\s\"'<>]*)@", value):
            yield userinfo
            yield userinfo.partition(":")[2]
    for file in files:
        try:
            yield file.read_text(errors="replace").strip()
        except OSError:
            continue


def _forms(secret: str) -> Iterator[str]:
    """As texts have it: as it is, in JSON, in a URL, and in a Secret of Kubernetes."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield quote(secret, safe="")
    yield base64.b64encode(secret.encode()).decode()
