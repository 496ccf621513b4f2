"""The served model, loaded: card, tokenizer, template; no weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from cluster import VERSION
from cluster.config import RouterOptions
from cluster.models.card import ModelCard
from cluster.models.hf.generation_defaults import GenerationDefaults, generation_defaults_of
from cluster.models.pooling import Pooling
from cluster.models.text.pooling import pooling_of_model
from cluster.models.text.template_files import CheckpointTemplate, load_chat_template
from cluster.models.text.tokenizer import CheckpointTokenizer, load_tokenizer
from cluster.process.startup import report_progress
from router.front.inline_limit import inline_limit_of
from router.front.served_model import ServedModel
from router.grammar.spelled import SpecialTexts
from router.text.tokenizer import ChatTemplate, Tokenizer
from router.tools.detection import AUTO, NONE, Manners, manners_of
from router.tools.fitted_template import fitted

FINGERPRINT_CHARS = 12


def load_served_model(
    card: ModelCard, options: RouterOptions, context_limit: Callable[[], int]
) -> ServedModel:
    """Blocking, about half a second. Raises a ModelError. Its tokenizer is timed."""
    report_progress("tokenizer")
    wants_own = options.generation_config == "auto"
    defaults = generation_defaults_of(card) if wants_own else None
    name = options.model.name_of(card.name)
    formats = (options.tool_format, options.reasoning_format)
    pooling = pooling_of_model(card, options.model)
    model = load_text_side(card, name, context_limit, defaults, formats=formats, pooling=pooling)
    return replace(model, inline=inline_limit_of(model.tokenizer))


def load_text_side(
    card: ModelCard,
    name: str,
    context_limit: Callable[[], int] | None = None,
    defaults: GenerationDefaults | None = None,
    *,
    formats: tuple[str, str] = (AUTO, AUTO),
    pooling: Pooling | None = None,
) -> ServedModel:
    """As `load_served_model`; without a limit of the workers', the model's own. Without defaults
    nothing is the checkpoint's. `formats`: the words of --tool-format and --reasoning-format."""
    tokenizer, own_limit = load_tokenizer(card), card.config.max_context_tokens
    template, manners = _chat_side(tokenizer, load_chat_template(card), formats)
    return ServedModel(
        name=name,
        tokenizer=tokenizer,
        template=template,
        manners=manners,
        special_texts=SpecialTexts(map(tokenizer.token_text, tokenizer.special_ids)),
        vocab_size=card.config.vocab_size,
        context_limit=context_limit or (lambda: own_limit),
        max_token_bytes=_longest_token_bytes(tokenizer, card.config.vocab_size),
        fingerprint=_fingerprint(card),
        defaults=defaults or GenerationDefaults(),
        pooling=pooling,
        hidden_size=card.config.hidden_size,
    )


def _chat_side(
    tokenizer: CheckpointTokenizer, template: CheckpointTemplate | None, formats: tuple[str, str]
) -> tuple[ChatTemplate | None, Manners]:
    """The template, made fit for tools, and the manners that go with it."""
    manners = _manners(tokenizer, template, formats)
    if template is None:
        return None, manners
    fit = fitted(template, manners.tools, formats[0])
    name = NONE if fit.tools is None else fit.tools.name
    manners = _manners(tokenizer, template, (name, formats[1]))
    return fit.template, structs.replace(manners, one_call=fit.one_call)


def _manners(
    tokenizer: CheckpointTokenizer, template: CheckpointTemplate | None, formats: tuple[str, str]
) -> Manners:
    special = {tokenizer.token_text(token_id): token_id for token_id in tokenizer.special_ids}
    source = None if template is None else template.source
    return manners_of(source, special, tools=formats[0], reasoning=formats[1])


def _longest_token_bytes(tokenizer: Tokenizer, vocab_size: int) -> int:
    lengths = (len(tokenizer.token_bytes(token_id)) for token_id in range(vocab_size))
    return max(1, max(lengths, default=1))


def _fingerprint(card: ModelCard) -> str:
    material = f"{VERSION}:{card.weights_digest}:{card.tokenizer_digest}".encode()
    return f"fp_{hashlib.sha256(material).hexdigest()[:FINGERPRINT_CHARS]}"
