"""The checkpoint that `--speculation` names: a model, or a head, that guesses for another model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cluster.common_options import ModelOptions
from cluster.errors import BadCheckpoint, ConfigError, UnsupportedModel
from cluster.models.cache.find_card import find_card, find_heads
from cluster.models.cache.source import FolderSource, GgufSource, parse_source
from cluster.models.card import ModelCard
from cluster.models.heads.card import HeadsCard
from cluster.models.text.same_tokens import spell_alike
from cluster.speculation import SPECULATION_WORDS, SpeculationWish


def local_drafter_source(wish: SpeculationWish) -> str | None:
    """What is asked for, where that is a folder or a file of this machine. None: a word, or what
    is fetched when it is needed. Raises ConfigError for what is neither a word nor a source."""
    source = wish.source
    if source is None:
        return None
    with _said_of_speculation():
        place = parse_source(source)
    return source if isinstance(place, FolderSource | GgufSource) else None


def check_drafter(source: str, target: ModelCard) -> None:
    """Whether a folder or file of this machine can guess for `target`, as far as is seen without
    loading it. Raises ConfigError, and a ModelError."""
    try:
        find_drafter_card(source, target)
    except (BadCheckpoint, UnsupportedModel) as error:
        raise ConfigError(
            f"speculation by {source} cannot be had: {error.message}", param="speculation"
        ) from error


def find_drafter_card(source: str, target: ModelCard) -> ModelCard | HeadsCard:
    """Blocking: may download. Raises ConfigError for a model that is not there, or that spells text
    in other tokens, and a ModelError. A head has the target's tokens: whether it fits the target is
    seen where it is loaded."""
    heads = find_drafter_heads(source)
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


def find_drafter_heads(source: str) -> HeadsCard | None:
    """As `find_drafter_card`; None: it is no head."""
    with _said_of_speculation():
        return find_heads(source)


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
