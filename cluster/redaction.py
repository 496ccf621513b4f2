"""Secrets do not leave: what a command shows of a process's settings, or puts into a file for
others, goes through a `Redactor`.

    by name     join_token=..., "password": "...", HF_TOKEN, Authorization: ..., *_HEADERS
    by shape    user:password@ in a URL, sk-... and hf_... keys, bearer tokens, private keys in PEM
    by value    what this process knows to be secret, wherever and however it is written
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cluster.errors import ConfigError
from cluster.home import default_home
from cluster.join_token import JOIN_TOKEN_FILE

REDACTED = "***"
_KEY_FILES = ("SPLITSERVE_VLLM_KEY_FILE", "SPLITSERVE_TLS_KEY")
"""Variables that name files with a secret."""
MIN_SECRET_CHARS = 6
"""Of values that are redacted wherever they stand: a shorter one would take words apart."""
_NAME = (
    r"(?:token(?![a-z]|_ms|_id|_count)|secret(?:(?![a-z])|_?key)|passw(?:or)?d|passphrase"
    r"|(?:api|private|access)[_-]?key|authorization|credential|cookie|[_-]headers(?![\w-]))"
)
_IS_SECRET = re.compile(_NAME, re.IGNORECASE)
_NAMES_A_PLACE = re.compile(r"(?:_|-)(?:files?|path|dir|folder|url)$", re.IGNORECASE)
_START = r"(?<![\w.-])[\w.-]{0,200}"
"""Of a name that ends in another one. From a word's start alone, and bounded: a log may hold a
megabyte without a space."""
_QUOTED = r"\\\"(?:[^\"\\]|\\(?!\"))*(?:\\\"|\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\Z)|'[^']*(?:'|\Z)"
"""Also what was cut off before its end."""
_SHAPES = tuple(
    (re.compile(shape, re.IGNORECASE | re.DOTALL), rf"\1{REDACTED}")
    for shape in (
        r"()-----BEGIN (?:[A-Z ]{0,64}PRIVATE KEY)-----.*?(?:-----END [A-Z ]{0,64}-----|\Z)",
        r"((?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{0,31}://)[^\s\"'<>]{0,1024}(?=@)",
        r"\b(sk-|hf_)[A-Za-z0-9_-]{8,}",
        r"\b((?:bearer|basic)\s{1,8})[A-Za-z0-9._~+/=-]{6,}",
        # --join-token V, and as neighbours in a list
        rf"(--[\w-]{{0,64}}(?:{_NAME}|-key)(?![\w-])(?:=|\s{{1,64}}(?:-\s)?|[\"']\s*,\s*)[\"']?)"
        r"[^\s\"',\]]+",
        # a variable of a container
        rf"(\bname\\?[\"']?:\s*\\?[\"']?[\w.-]{{0,200}}{_NAME}[\w-]{{0,64}}\\?[\"']?,?\s*"
        rf"\\?[\"']?value\\?[\"']?:\s*)(?:{_QUOTED}|[^\n,}}]+)",
    )
)
_NAMED = re.compile(
    rf"({_START}{_NAME}[\w-]{{0,64}}(?<!_file)(?<!_path)\\?[\"']?\s*)"
    rf"(?:([=:]\s*)({_QUOTED})|(=\s*)[^\s;&\"'}}\]]+|(:\s*)[^\n\"'}}\]]+)",
    re.IGNORECASE,
)
"""To the end of its line where a colon stands: headers have words, and so have pass phrases."""


class Redactor:
    """For texts and for data; knows the secrets that it was made with."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
        written = {form for secret in known for form in _forms(secret)}
        longest_first = sorted(written, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if written else None

    def known(self, text: str) -> str:
        """The same without what is known to be secret, by value alone."""
        return text if self._known is None else self._known.sub(REDACTED, text)

    def text(self, text: str) -> str:
        """The same without secrets."""
        text = self.known(text)
        for shape, redacted in _SHAPES:
            text = shape.sub(redacted, text)
        return _NAMED.sub(_without_value, text)

    def data(self, value: Any) -> Any:
        """Of what JSON can hold: what a secret's name says is redacted whole, text as text."""
        if isinstance(value, dict):
            return {key: self._named(_name_in(key, value), item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            flags = ["", *value][: len(value)]
            return [
                self._named(flag if _is_flag(flag) else "", item)
                for flag, item in zip(flags, value, strict=True)
            ]
        return self.text(value) if isinstance(value, str) else value

    def _named(self, name: str, value: Any) -> Any:
        return _all_redacted(value) if is_secret_name(name) else self.data(value)


def _without_value(found: re.Match[str]) -> str:
    name, before_quoted, quoted, equals, colon = found.groups()
    if quoted is None:
        return f"{name}{equals or colon}{REDACTED}"
    quote_mark = quoted[:2] if quoted.startswith("\\") else quoted[0]
    return f"{name}{before_quoted}{quote_mark}{REDACTED}{quote_mark}"


def _name_in(key: object, value: dict[Any, Any]) -> str:
    """A container's variable has its name beside its value."""
    name = value.get("name")
    return name if key == "value" and isinstance(name, str) else str(key)


def _is_flag(item: object) -> bool:
    return isinstance(item, str) and item.startswith("--") and "=" not in item


def _all_redacted(value: Any) -> Any:
    """Every text below a secret's name."""
    if isinstance(value, dict):
        return {key: _all_redacted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_all_redacted(item) for item in value]
    return REDACTED if isinstance(value, str) and value else value


def own_redactor(files: Iterable[Path] = ()) -> Redactor:
    """Of what this process may know to be secret: its variables, the tokens of this home and of a
    hub, keys that variables name, and `files`. Reads them, but for those that it cannot read."""
    known = [Path(os.environ.get("HF_HOME", "~/.cache/huggingface"), "token").expanduser()]
    with suppress(ConfigError):
        known.append(default_home() / JOIN_TOKEN_FILE)
    named = (os.environ.get(name) for name in _KEY_FILES)
    known += [Path(each) for each in named if each]
    return Redactor(secrets_of(os.environ, [*known, *files]))


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
