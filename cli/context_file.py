"""The file of named fleets, and which of them is the current one.

    $SPLITSERVE_CONTEXTS, else $XDG_CONFIG_HOME/splitserve/contexts.yaml, else ~/.config/...

It names files with secrets and holds none; all the same only its owner may read and write it: who
could write it could have a join token sent anywhere.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from cluster.errors import ConfigError

CONTEXTS_VARIABLE = "SPLITSERVE_CONTEXTS"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class FleetContext(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one fleet is, and how an operator is let in; None: not said."""

    router: str | None = None
    """host:port of its router's gRPC, or of several, with commas."""
    release: str | None = None
    """On Kubernetes: namespace/release of the chart."""
    join_token_file: str | None = None
    fleet_tls: str | None = None
    """Folder with cert.pem, key.pem and ca.pem."""
    price: str | None = None
    """Of an hour of its workers, by pool: prefill=2.5,decode=2.5."""


class Contexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of the file."""

    current: str | None = None
    contexts: dict[str, FleetContext] = {}

    def named(self, name: str, path: Path) -> FleetContext:
        """Raises ConfigError with the names that there are."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise ConfigError(f"{path} has no context {name!r}; it has: {known}", param="context")
        return self.contexts[name]


def contexts_path(environ: Mapping[str, str] = os.environ) -> Path:
    """See the head of the file. Raises ConfigError where nobody has a home."""
    if named := environ.get(CONTEXTS_VARIABLE):
        return Path(named).expanduser()
    folder = environ.get("XDG_CONFIG_HOME")
    try:
        root = Path(folder) if folder else Path.home() / ".config"
    except RuntimeError as cause:
        raise ConfigError(
            f"no folder for contexts: HOME is not set; set {CONTEXTS_VARIABLE} to a file"
        ) from cause
    return root / "splitserve" / "contexts.yaml"


def read_contexts(path: Path) -> Contexts:
    """No file is no contexts. Raises ConfigError for one that others may write, or that is none."""
    try:
        with path.open("rb") as file:
            _check_is_ours(path, os.fstat(file.fileno()))
            text = file.read()
    except FileNotFoundError:
        return Contexts()
    except OSError as cause:
        raise ConfigError(f"{path} cannot be read: {cause.strerror}") from cause
    return _decoded(text, path)


@contextmanager
def changing_contexts(path: Path) -> Iterator[list[Contexts]]:
    """Yields what there is in a list of one; what is there at the end is written, with mode 0600,
    whole or not at all. Changes wait for each other. Raises ConfigError."""
    from filelock import FileLock, Timeout  # 15 ms, of use here alone

    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(f"{path}.lock", timeout=10.0, mode=0o600):
            held = [read_contexts(path)]
            yield held
            _write(path, held[0])
    except Timeout as cause:
        raise ConfigError(f"{path} is being changed by somebody else: {cause}") from cause
    except OSError as cause:
        raise ConfigError(
            f"{path} cannot be written: {cause.strerror}; set {CONTEXTS_VARIABLE} to another file"
        ) from cause


def checked_name(name: str) -> str:
    """Raises ConfigError."""
    if _NAME.fullmatch(name) is None or name == "none":
        raise ConfigError(
            f"{name!r} is no name of a context; use letters, digits, dots, dashes and underscores "
            "(63 at most), and not the word none",
            param="context",
        )
    return name


def _decoded(text: bytes, path: Path) -> Contexts:
    try:
        return msgspec.yaml.decode(text or b"{}", type=Contexts)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise ConfigError(f"{path}: {cause}; see `splitserve config set-context --help`") from cause


def _check_is_ours(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.getuid()):
        raise ConfigError(f"{path} belongs to another user; name a file of your own")
    if found.st_mode & _OTHERS_MAY_WRITE:
        raise ConfigError(f"{path} may be written by others; chmod 600 {path}")


def _write(path: Path, contexts: Contexts) -> None:
    """A temporary file has mode 0600."""
    kept = msgspec.structs.replace(contexts, contexts=dict(sorted(contexts.contexts.items())))
    plain = msgspec.to_builtins(kept)
    plain["contexts"] = {name: _said(each) for name, each in plain["contexts"].items()}
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as new:
        try:
            new.write(msgspec.yaml.encode(_said(plain)))
            new.flush()
            os.replace(new.name, path)
        except BaseException:
            os.unlink(new.name)
            raise


def _said(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
