"""The model as the front door knows it: names, limits, tokenizer, template."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cluster.adapter import NOTHING_UNREAD, Adapter, UnreadAdapters
from cluster.errors import AdapterUnread, InvalidRequest, NotAllowed, UnknownModel
from cluster.models.hf.generation_defaults import GenerationDefaults
from cluster.models.pooling import Pooling
from router.front.inline_limit import InlineLimit
from router.grammar.spelled import SpecialTexts
from router.tenants.tenant import Tenant
from router.text.tokenizer import ChatTemplate, Tokenizer
from router.tools.detection import Manners

UNREAD_RETRY_S: Final = 5.0
"""Who asks for an adapter that is still to be read is told to come again after that."""


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
    unread_adapters: Callable[[], UnreadAdapters] = lambda: NOTHING_UNREAD
    """Names that nobody knows yet, of adapters that workers are about to read."""
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

    def adapter_name_in(self, asked: str | None) -> str:
        """The adapter's name, where it is none of this model's; empty: the model alone. That there
        is such a one, and that a key is for it, `CompletionPipeline.adapter_of` finds."""
        return "" if not asked or asked == self.name else asked

    def check_key(self, tenant: Tenant, adapter: str) -> None:
        """`adapter`: its name; empty: the model alone. Raises NotAllowed for a key that is not for
        the model. One that is not for an adapter learns of none: what is raised is that of a name
        that is not there, UnknownModel, and AdapterUnread while that may be any."""
        if tenant.may_ask(adapter or self.name):
            return
        if not adapter:
            raise NotAllowed(f"this API key is not for {self.name[:200]}")
        raise unknown_model(self, adapter, may_come=self.unread_adapters().may_be_any)

    def adapter_named(self, name: str, *, is_pooled: bool = False) -> Adapter:
        """What the name stands for at this moment. Raises UnknownModel, and AdapterUnread
        where it may yet come."""
        adapter = (self.find_pooling_adapter if is_pooled else self.find_adapter)(name)
        return self._found(adapter, name)

    def listed_adapter(self, name: str) -> Adapter:
        """Whatever it is asked for. Raises UnknownModel and AdapterUnread."""
        found = (item for item in self.all_adapters() if item.name == name)
        return self._found(next(found, None), name)

    def _found(self, adapter: Adapter | None, name: str) -> Adapter:
        if adapter is None:
            raise unknown_model(self, name, may_come=name in self.unread_adapters())
        return adapter


def unknown_model(
    model: ServedModel, name: str, *, may_come: bool = False
) -> UnknownModel | AdapterUnread:
    """For a name that stands for nothing: now, or for good."""
    if may_come:
        return AdapterUnread(
            f"`{name[:200]}` is no model that is known here, and may be an adapter that workers "
            "have still to read; try again later",
            retry_after_s=UNREAD_RETRY_S,
        )
    return UnknownModel(
        f"The model `{name[:200]}` does not exist; served here: `{model.name}`", param="model"
    )
