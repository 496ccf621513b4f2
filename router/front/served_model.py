"""The model as the front door knows it: names, limits, tokenizer, template."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.adapter import Adapter
from cluster.errors import AdapterUnread, InvalidRequest, UnknownModel
from cluster.models.hf.generation_defaults import GenerationDefaults
from cluster.models.pooling import Pooling
from router.front.inline_limit import InlineLimit
from router.grammar.spelled import SpecialTexts
from router.text.tokenizer import ChatTemplate, Tokenizer
from router.tools.detection import Manners


def no_adapters(name: str) -> Adapter | None:
    """Of a fleet that has none."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One model; `template` is None for a base model that cannot chat."""

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    vocab_size: int
    context_limit: Callable[[], int]
    """Tokens of prompt and completion together; asked for every request, because workers that
    come and go may have less room than the model allows."""
    max_token_bytes: int
    """The longest token of the vocabulary: no prompt fits that is longer than this times the
    context, whatever its tokens are."""
    fingerprint: str
    """`system_fingerprint`: changes when the weights or the program change."""
    defaults: GenerationDefaults = GenerationDefaults()
    """Of requests that name no other."""
    manners: Manners = Manners()
    """How it writes what is no text: calls of tools, thoughts."""
    inline: InlineLimit = InlineLimit()
    """What of its texts the event loop encodes itself."""
    special_texts: SpecialTexts = SpecialTexts()
    """Of all its special tokens, which a grammar's text may be taken for."""
    pooling: Pooling | None = None
    """What it makes of prompts in place of text; None: it makes text alone."""
    hidden_size: int = 0
    """Values of an embedding that is not cut."""
    find_adapter: Callable[[str], Adapter | None] = no_adapters
    """By the name that a client asks for, of an answer in text; None: there is none."""
    find_pooling_adapter: Callable[[str], Adapter | None] = no_adapters
    """The same of an embedding or a score."""
    all_adapters: Callable[[], list[Adapter]] = list
    has_unread_adapters: Callable[[], bool] = lambda: False
    """Whether a name that nobody knows may be an adapter's that a worker is about to read."""
    created_s: int = field(default_factory=lambda: int(time.time()))

    @property
    def max_context_tokens(self) -> int:
        """Prompt and completion together, at this moment."""
        return self.context_limit()

    @property
    def makes_text(self) -> bool:
        """False where embeddings or scores are all it makes."""
        return self.pooling is None or self.pooling.generates

    def check_text(self) -> None:
        """Raises InvalidRequest where no text can be had."""
        if not self.makes_text:
            assert self.pooling is not None
            path = "/v1/embeddings" if self.pooling.is_embedding else "/v1/score and /v1/rerank"
            raise InvalidRequest(f"{self.name} makes no text; it serves {path}", param="model")

    def adapter_of(self, asked: str | None) -> str:
        """The adapter's name, where it is none of this model's; empty: the model alone. That there
        is such a one, and that a key is for it, `CompletionPipeline.adapter_of` finds."""
        return "" if not asked or asked == self.name else asked

    def adapter_named(self, name: str, *, is_pooled: bool = False) -> Adapter:
        """What the name stands for at this moment. Raises UnknownModel, and AdapterUnread
        where it may yet come."""
        adapter = (self.find_pooling_adapter if is_pooled else self.find_adapter)(name)
        if adapter is None:
            raise unknown_model(self, name)
        return adapter

    def listed_adapter(self, name: str) -> Adapter:
        """Whatever it is asked for. Raises UnknownModel and AdapterUnread."""
        found = (item for item in self.all_adapters() if item.name == name)
        if (adapter := next(found, None)) is None:
            raise unknown_model(self, name)
        return adapter


def unknown_model(model: ServedModel, name: str) -> UnknownModel | AdapterUnread:
    """For a name that stands for nothing: now, or for good."""
    if model.has_unread_adapters():
        return AdapterUnread(
            f"`{name[:200]}` is no model that is known here, and workers still read their "
            "adapters, of which it may be one; try again later"
        )
    return UnknownModel(
        f"The model `{name[:200]}` does not exist; served here: `{model.name}`", param="model"
    )
