"""What an answer must be: a grammar, as text that llguidance compiles.

The router makes it of a client's wish, checks it and tries it out; engines compile it again.
Whether a token may come is a function of the grammar and of the tokens before it, so nothing but
the text travels.
"""

from __future__ import annotations

import enum
from hashlib import blake2b

import msgspec

DIGEST_BYTES = 16
OWNER_BYTES = 8


class GrammarKind(enum.StrEnum):
    """What the client asked with: for messages and metrics, it changes no mask."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"
    LARK = "grammar"
    STRUCTURAL_TAG = "structural_tag"
    TOOLS = "tools"


class Grammar(msgspec.Struct, frozen=True):
    """Equal texts are equal grammars, whoever sent them. Not checked here: what enters a router is
    checked there, what enters a worker is bounded by `worker/admission.py`."""

    text: str
    """Lark in llguidance's dialect, or its JSON: `{"grammars": [{"json_schema": ...}]}`."""
    kind: GrammarKind
    param: str | None = None
    """The client's field, for refusals; workers are not told."""

    owner: bytes = b""
    """In whose share of an engine's compiled grammars it counts: a name that says nothing of the
    tenant. The router's word; the client's field is not asked."""

    def owned_by(self, tenant: str) -> Grammar:
        """The same, in that tenant's share."""
        name = blake2b(tenant.encode(), digest_size=OWNER_BYTES).digest()
        return msgspec.structs.replace(self, owner=name)

    @property
    def digest(self) -> bytes:
        """DIGEST_BYTES of the text: the name of what is made of it."""
        return blake2b(self.text.encode(), digest_size=DIGEST_BYTES).digest()
