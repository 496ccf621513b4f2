"""Where the shared store is, as an operator names it: redis://[user:password@]host[:port][/db]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import ParseResult, parse_qsl, unquote, urlparse

from cluster.errors import ConfigError

DEFAULT_PORT = 6379
_FORM = "redis://[USER:PASSWORD@]HOST[:PORT][/DB], or rediss://... for TLS"
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """Of one Redis. Its text form, for logs and errors, has no password."""

    host: str
    port: int
    db: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    is_tls: bool = False
    tls_files: Mapping[str, str] = field(default_factory=dict)
    """`ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile`, of those that were named."""

    def __str__(self) -> str:
        scheme = "rediss" if self.is_tls else "redis"
        return f"{scheme}://{self.host}:{self.port}/{self.db}"


def read_address(url: str, *, option: str = "store") -> StoreAddress:
    """Of the option that names it. Raises ConfigError, which does not repeat what was given: it may
    hold a password."""
    try:
        parts = urlparse(url)
        if parts.scheme not in ("redis", "rediss") or not parts.hostname:
            raise ValueError("it has another form")
        return StoreAddress(
            host=parts.hostname,
            port=parts.port or DEFAULT_PORT,
            db=_db_in(parts.path),
            username=_plain(parts.username),
            password=_plain(parts.password),
            is_tls=parts.scheme == "rediss",
            tls_files=_files_in(parts),
        )
    except ValueError as cause:
        raise ConfigError(
            f"--{option} cannot be read as {_FORM}: {_without_values(cause)}", param=option
        ) from None


def _db_in(path: str) -> int:
    number = path.strip("/")
    if number and not number.isdecimal():
        raise ValueError("its database is not a number")
    return int(number or 0)


def _plain(text: str | None) -> str | None:
    """As it was before it was written into a URL; None where it is empty."""
    return unquote(text) if text else None


def _files_in(parts: ParseResult) -> dict[str, str]:
    files = dict(parse_qsl(parts.query, keep_blank_values=True))
    if files and (parts.scheme != "rediss" or files.keys() - set(_TLS_FILES)):
        raise ValueError(f"after a ? come {', '.join(_TLS_FILES)} alone, and with rediss://")
    return files


def _without_values(cause: ValueError) -> str:
    """Python's own words of a port repeat what it found there."""
    return "its port is not a number" if "ort" in str(cause) else str(cause)
