"""What a worker's engine guesses coming tokens by, where it is a checkpoint: a model, or a head."""

from __future__ import annotations

import contextlib

from cluster.common_options import ModelOptions
from cluster.config import WorkerOptions
from cluster.errors import ConfigError, ModelError
from cluster.identity import Role
from cluster.models.cache.find_card import find_text_card
from cluster.models.cache.source import HubSource, parse_source
from cluster.models.card import ModelCard
from cluster.models.drafter_source import find_drafter_card, find_drafter_heads
from cluster.models.heads.card import HeadsCard
from cluster.process.thread_call import in_thread


async def find_drafter(options: WorkerOptions, target: ModelCard) -> ModelCard | HeadsCard | None:
    """The card of what guesses for `target`, fetched when it is not here; None: no checkpoint does,
    or nobody decodes here and it is no head, whose KV is in the blocks of prompts. Raises
    ConfigError for one that cannot, and a ModelError."""
    source = options.engine.speculation_wish.source
    if source is None:
        return None
    if options.role is Role.PREFILL:
        return await in_thread("model-fetch", lambda: _find_heads_alone(source))
    return await in_thread("model-fetch", lambda: find_drafter_card(source, target))


def _find_heads_alone(source: str) -> HeadsCard | None:
    """Of a hub's whole model no more is fetched than its text side, which says that it is one; of
    any other source nothing is, nor read but what says so."""
    with contextlib.suppress(ModelError, ConfigError):
        if isinstance(parse_source(source), HubSource):
            find_text_card(ModelOptions(model=source))
            return None
    return find_drafter_heads(source)
