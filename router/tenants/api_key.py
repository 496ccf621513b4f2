"""An API key, and what is kept of it.

    sk-ID-SECRET    ID names the key, to operators and in logs; SECRET is 256 random bits

Nobody can guess so many bits, so that one SHA-256 of the whole protects it as well as a slow hash
would. The key itself is shown once, to whoever makes it.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime

import msgspec

_PREFIX = "sk"
_ID_BYTES = 4
_SECRET_BYTES = 32


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of one key."""

    id: str
    digest: str
    """SHA-256 of the whole key, in hex."""
    tenant: str
    """Whose it is; several keys may be one tenant's."""
    created: datetime
    models: tuple[str, ...] = ()
    """Names that it may ask for; empty: all."""
    requests_per_minute: float | None = None
    """None: as many as there is room for."""


def new_key(
    tenant: str, *, models: tuple[str, ...] = (), requests_per_minute: float | None = None
) -> tuple[KeyRecord, str]:
    """A record to keep, and the key to hand out."""
    key_id = secrets.token_hex(_ID_BYTES)
    key = f"{_PREFIX}-{key_id}-{secrets.token_urlsafe(_SECRET_BYTES)}"
    record = KeyRecord(
        id=key_id,
        digest=digest_of(key),
        tenant=tenant,
        created=datetime.now(UTC).replace(microsecond=0),
        models=models,
        requests_per_minute=requests_per_minute,
    )
    return record, key


def digest_of(key: str) -> str:
    """As a record keeps it; of any text that a client may send."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def id_of(key: str) -> str:
    """Of what has the form of a key; else "" """
    prefix, _, rest = key.partition("-")
    return rest.partition("-")[0] if prefix == _PREFIX else ""
