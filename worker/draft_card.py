"""What a worker's engine guesses coming tokens by, where it is a checkpoint: a model, or a head."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cluster.common_options import ModelOptions
from cluster.config import WorkerOptions
from cluster.errors import ConfigError, ModelError
from cluster.identity import Role
from cluster.models.cache.find_card import find_card, find_heads, find_text_card
from cluster.models.cache.source import HubSource, parse_source
from cluster.models.card import ModelCard
from cluster.models.heads.card import HeadsCard
from cluster.models.text.same_tokens import spell_alike
from cluster.process.thread_call import in_thread
from cluster.speculation import SPECULATION_WORDS


async def find_draft(options: WorkerOptions, target: ModelCard) -> ModelCard | HeadsCard | None:
    """The card of what guesses for `target`, fetched when it is not here; None: no checkpoint does,
    or nobody decodes here and it is no head, whose KV is in the blocks of prompts. Raises
    ConfigError for one that cannot, and a ModelError."""
    source = options.engine.speculation_wish.source
    if source is None:
        return None
    if options.role is Role.PREFILL:
        return await in_thread("model-fetch", lambda: _find_heads_alone(source))
    return await in_thread("model-fetch", lambda: find_draft_card(source, target))


def find_draft_card(source: str, target: ModelCard) -> ModelCard | HeadsCard:
    """Blocking: may download. Raises ConfigError for a model that is not there, or that spells text
    in other tokens, and a ModelError. A head has the target's tokens: whether it fits the target is
    seen where it is loaded."""
    heads = _find_heads(source)
    if heads is not None:
        return heads
    with _said_of_speculation():
        card = find_card(ModelOptions(model=source))
    if not spell_alike(target, card):
        raise ConfigError(
            f"speculation by {card.name} cannot be had: its tokens are not those of {target.name}; "
            "choose a smaller model of the same family, ngram or off",
            param="speculation",
        )
    return card


def _find_heads(source: str) -> HeadsCard | None:
    with _said_of_speculation():
        return find_heads(source)


def _find_heads_alone(source: str) -> HeadsCard | None:
    """Of a hub's whole model no more is fetched than its text side, which says that it is one; of
    any other source nothing is, nor read but what says so."""
    with contextlib.suppress(ModelError, ConfigError):
        if isinstance(parse_source(source), HubSource):
            find_text_card(ModelOptions(model=source))
            return None
    return _find_heads(source)


@contextlib.contextmanager
def _said_of_speculation() -> Iterator[None]:
    """Errors about a source are about this option."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(
            f"speculation is none of {', '.join(SPECULATION_WORDS)}, and no model: {error.message}",
            param="speculation",
        ) from error
