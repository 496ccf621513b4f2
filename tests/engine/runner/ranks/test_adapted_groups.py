"""Adapters in a group of processes: all ranks have one, or none has."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec import structs

from cluster.block_hash import cache_root
from cluster.models.adapters.files import read_adapter
from cluster.models.card import ModelCard
from engine.contract.adapters import LoadAdapter
from engine.contract.commands import GenerateRequest, Submit
from engine.contract.messages import Frame
from engine.offline.queue import generate
from engine.offline.replica import greedy_request
from engine.step.engine import Engine
from tests.adapter_files import save_adapter
from tests.engine.model.tiny_llama import random_model, saved_card, tiny_config
from tests.engine.runner.ranks.groups import running, spec_of

NAMES = ("a", "b", "c")
PROMPT = [3, 5, 7, 11, 13, 17, 19, 23, 29]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def card(tmp_path: Path) -> ModelCard:
    return saved_card(random_model(tiny_config()), tmp_path / "base")


def save(root: Path, card: ModelCard) -> dict[str, str]:
    """Digests by name."""
    return {
        name: read_adapter(
            root, save_adapter(root / name, card.config, rank=8, seed=seed), card.config
        ).digest
        for seed, name in enumerate(NAMES)
    }


def step_until(engine: Engine, is_there) -> Frame:  # type: ignore[no-untyped-def]
    limit_s = time.monotonic() + 60
    while time.monotonic() < limit_s:
        frame = engine.step()
        if is_there(frame):
            return frame
    raise AssertionError("it never came")


def load(engine: Engine, root: Path, name: str, digest: str) -> str:
    """The failure, if it is one."""
    engine.apply(LoadAdapter(digest=digest, root=str(root), folder=str(root / name), lora_rank=8))
    frame = step_until(engine, lambda frame: any(n.digest == digest for n in frame.adapters))
    return next(news.failure for news in frame.adapters if news.digest == digest)


def asked(name: str, digest: str) -> GenerateRequest:
    request = greedy_request(name, PROMPT, 8)
    root = cache_root("pair", "", digest)
    return structs.replace(request, adapter=digest, cache_root=root)


def test_two_ranks_answer_with_adapters_as_one_does_also_where_they_give_way(
    card: ModelCard, tmp_path: Path
) -> None:
    root = tmp_path / "adapters"
    digests = save(root, card)
    answers = []
    for num_ranks, room in ((1, 64), (2, 16)):
        spec = spec_of(
            card, num_ranks, max_context_tokens=64, adapters=str(root), adapter_ranks=room
        )
        with running(spec) as replica:
            engine = Engine(replica, spec.options)
            for name, digest in digests.items():
                assert load(engine, root, name, digest) == ""
            requests = [asked(f"{turn}{name}", digests[name]) for turn in "12" for name in NAMES]
            found = generate(engine, [*requests, asked("base", "")])
            answers.append([completion.token_ids() for completion in found])
            assert engine.check_invariants() == []
    assert answers[0] == answers[1]
    assert len({tuple(answer) for answer in answers[0]}) == len(NAMES) + 1


def test_files_that_one_cannot_read_fail_at_all_and_the_group_goes_on(
    card: ModelCard, tmp_path: Path
) -> None:
    root = tmp_path / "adapters"
    digests = save(root, card)
    spec = spec_of(card, 2, max_context_tokens=64, adapters=str(root), adapter_ranks=16)
    with running(spec) as replica:
        engine = Engine(replica, spec.options)
        _check_told("have changed", load(engine, root, "a", "0" * 32))
        assert load(engine, root, "b", digests["b"]) == ""
        (root / "c" / "adapter_model.safetensors").unlink()
        _check_told("lacks adapter_model.safetensors", load(engine, root, "c", digests["c"]))
        engine.apply(Submit(asked("refused", digests["c"])))
        frame = step_until(engine, lambda frame: bool(frame.ended))
        assert frame.ended[0].error_code == "adapter_gone"
        [found] = generate(engine, [asked("fine", digests["b"])])
        assert len(found.token_ids()) == 8


def _check_told(cause: str, failure: str) -> None:
    """Both ranks look, and whose word comes first is told: another's has its cause in its log."""
    others = ("another rank could not read it", "another rank has refused it")
    assert cause in failure or failure.startswith(others)
