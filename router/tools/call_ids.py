"""Names of calls, by which a tool's answer says what it answers."""

from __future__ import annotations

from cluster.identity import UniqueHex
from router.tools.formats import ToolFormat

ID_CHARS = 24
SHORT_ID_CHARS = 9


def new_call_id(tools: ToolFormat, draw: UniqueHex) -> str:
    """That nobody was given before; as short as the family's template wants it."""
    return draw()[:SHORT_ID_CHARS] if tools.short_ids else f"call_{draw()[:ID_CHARS]}"
