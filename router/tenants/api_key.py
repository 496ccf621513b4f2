"""An API key, and what is kept of it.

    sk-ID-SECRET    ID names the key, to operators and in logs; SECRET is 256 random bits

Nobody can guess so many bits, so that one SHA-256 of the whole protects it as well as a slow hash
would. The key itself is shown once, to whoever makes it.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from datetime import UTC, datetime

import msgspec

from router.tenants.limits import Limit, LimitKind, Rate, TokenBudget
from router.tenants.priority import Priority

_PREFIX = "sk"
_ID_BYTES = 4
_SECRET_BYTES = 32


_RATES = {
    "requests_per_minute": LimitKind.REQUESTS,
    "input_tokens_per_minute": LimitKind.INPUT,
    "output_tokens_per_minute": LimitKind.OUTPUT,
}
DAY_S = 86_400.0


class KeyTerms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator grants with a key."""

    models: tuple[str, ...] = ()
    """Names that it may ask for; empty: all."""
    requests_per_minute: float | None = None
    """None, here and below: as many as there is room for."""
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    budget_tokens: float | None = None
    """Of prompts and answers, in each period."""
    budget_period_s: float = DAY_S
    weight: float = 1.0
    """Of its tenant's share among those of its class."""
    priority: Priority = Priority.STANDARD

    @property
    def fault(self) -> str | None:
        """What no key can have, in words."""
        for name in (*_RATES, "budget_tokens", "budget_period_s", "weight"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                return f"{value} {name}; allowed: above 0"
        return None

    def limits(self, key_id: str) -> list[Limit]:
        """As they are counted."""
        found: list[Limit] = [
            Rate(f"{key_id}/{kind}", kind, per_minute)
            for name, kind in _RATES.items()
            if (per_minute := getattr(self, name)) is not None
        ]
        if self.budget_tokens is not None:
            key = f"{key_id}/{LimitKind.BUDGET}"
            found.append(TokenBudget(key, self.budget_tokens, self.budget_period_s))
        return found


class KeyRecord(KeyTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of one key."""

    id: str
    digest: str
    """SHA-256 of the whole key, in hex."""
    tenant: str
    """Whose it is; several keys may be one tenant's."""
    created: datetime


def new_key(tenant: str, terms: KeyTerms | None = None) -> tuple[KeyRecord, str]:
    """A record to keep, and the key to hand out."""
    key_id = secrets.token_hex(_ID_BYTES)
    key = f"{_PREFIX}-{key_id}-{secrets.token_urlsafe(_SECRET_BYTES)}"
    record = KeyRecord(
        id=key_id,
        digest=digest_of(key),
        tenant=tenant,
        created=datetime.now(UTC).replace(microsecond=0),
        **msgspec.structs.asdict(terms or KeyTerms()),
    )
    return record, key


def digest_of(key: str) -> str:
    """As a record keeps it; of any text that a client may send."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def id_of(key: str) -> str:
    """Of what has the form of a key; else "" """
    prefix, _, rest = key.partition("-")
    return rest.partition("-")[0] if prefix == _PREFIX else ""
