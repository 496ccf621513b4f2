"""A rank on another host loads the model that lies there, and no other than its conductor's."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import ChecksumMismatch, ConfigError
from cluster.models.cache.store import ModelStore
from cluster.models.card import ModelCard
from engine.contract.spec import EngineSpec
from engine.runner.ranks.own_card import ToldProgress, spec_with_own_card
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.runner.ranks.groups import spec_of
from tests.manual_clock import ManualClock


def silent(phase: str, fraction: float) -> None:
    """Of a model that is here there is little to tell."""


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelCard:
    monkeypatch.setenv("SPLITSERVE_HOME", str(tmp_path / "home"))
    saved_card(random_model("LlamaForCausalLM"), tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    return ModelStore().resolve(str(tmp_path / "model"))


def sent_by(card: ModelCard) -> EngineSpec:
    """By a conductor whose files are at other places than here."""
    elsewhere = Path("/home/of/the/conductor")
    paths = tuple(elsewhere / path.name for path in card.weight_files)
    return spec_of(replace(card, weight_files=paths, metadata_path=elsewhere), 2)


def test_the_source_is_looked_for_here_wherever_the_conductor_has_it(card: ModelCard) -> None:
    spec = sent_by(card)
    own = spec_with_own_card(spec, silent)
    assert own.card.weight_files == card.weight_files
    assert own.card.weights_digest == spec.card.weights_digest and own.options == spec.options


def test_another_revision_at_the_same_path_is_refused_with_host_and_digests(
    card: ModelCard,
) -> None:
    config = Path(card.source) / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "rope_theta": 1234.0}))
    with pytest.raises(ChecksumMismatch, match="other weights") as refused:
        spec_with_own_card(sent_by(card), silent)
    assert socket.gethostname() in refused.value.message
    assert card.weights_digest[:12] in refused.value.message
    assert refused.value.param == "model"


def test_a_model_that_is_not_here_and_cannot_be_fetched_is_told_with_the_host(
    card: ModelCard, tmp_path: Path
) -> None:
    spec = sent_by(replace(card, source=str(tmp_path / "absent")))
    with pytest.raises(ConfigError, match=f"on {socket.gethostname()}: "):
        spec_with_own_card(spec, silent)


def told_of(*steps: tuple[str, int, int | None]) -> list[tuple[str, float]]:
    """Of what a store says, two steps a second."""
    told: list[tuple[str, float]] = []
    clock = ManualClock()
    progress = ToldProgress(lambda phase, fraction: told.append((phase, fraction)), clock=clock)
    for step in steps:
        progress(*step)
        clock.advance(0.5)
    return told


def test_a_rank_that_verifies_file_after_file_says_so_all_the_while() -> None:
    one_file = [("verify", done, 4) for done in range(1, 5)]
    assert told_of(*one_file * 3) == [("verify", 0.25), ("verify", 0.75)] * 3


def test_a_rank_that_waits_for_another_process_to_fetch_its_model_says_so_every_second() -> None:
    waits = [("wait", at * 500, None) for at in range(8)]
    assert told_of(*waits) == [("wait", 0.0)] * 4


def test_a_download_that_moves_slower_than_its_figures_is_told_every_second() -> None:
    assert told_of(*[("download", at, 10**9) for at in range(6)])[1:] == [
        ("download", 2e-9),
        ("download", 4e-9),
    ]


def test_a_phase_that_begins_is_told_at_once() -> None:
    steps = [("download", 1, 1), ("verify", 1, 1)]
    assert told_of(*steps) == [("download", 1.0), ("verify", 1.0)]
