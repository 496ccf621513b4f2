"""A checkpoint of one file: a byte-level tokenizer, and the chat template of the test's choice."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from router.text_worker.desk import TextDesk
from tests.cluster.models.conftest import TinyGguf

PLAIN_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture
def card_with(tmp_path: Path) -> Callable[[str], ModelCard]:
    """A model whose template is that text; its context is 128 tokens."""

    def make(template: str) -> ModelCard:
        checkpoint = TinyGguf()
        checkpoint.metadata["tokenizer.chat_template"] = template
        return ModelStore().resolve(str(checkpoint.write(tmp_path / "tiny.gguf")))

    return make


@pytest.fixture
def card(card_with: Callable[[str], ModelCard]) -> ModelCard:
    return card_with(PLAIN_TEMPLATE)


@pytest.fixture
def desks() -> dict[str, TextDesk]:
    """Made once for all examples of a test."""
    return {}


@pytest.fixture
def same_limits_after() -> Iterator[None]:
    """For what holds a limit of the kernel in the test's own process: all tests after it would be
    under that, and the processes that they start."""
    limits = resource.getrlimit(resource.RLIMIT_CPU)
    yield
    resource.setrlimit(resource.RLIMIT_CPU, limits)
