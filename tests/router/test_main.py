"""What a router is put together of."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from router.main import _own_model
from tests.router.front_fakes import tool_model


def test_a_router_knows_its_model_by_the_name_that_clients_ask_for() -> None:
    card: Any = SimpleNamespace(name="folder", tokenizer_digest="t", weights_digest="w")
    assert _own_model(card, replace(tool_model(), name="prod")).name == "prod"
