"""What is asked of both engines with prompt lookup, and what is made of their answers."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import bench_speculation_peers
from benchmarks.bench_speculation_peers import (
    DRAFTS,
    LOOKUP,
    OFF,
    VLLM,
    Turn,
    Work,
    entries,
    take_rounds,
    turn_of,
)
from benchmarks.comparison import OURS
from benchmarks.peers.contestant import HERE, Entry

PROMPTS = {"copying": [[1], [2], [3]], "chat": [[4], [5]]}


class Paced:
    """Answers every prompt with itself and `num_tokens` more, at a pace of its own."""

    def __init__(self, ms_per_token: float, *, num_tokens: int = 9, first_s: float = 2.0) -> None:
        self.asked: list[tuple[int, int]] = []
        self._ms, self._num_tokens, self._first_s = ms_per_token, num_tokens, first_s

    def generate(self, prompts: Sequence[list[int]], max_tokens: int) -> tuple[float, Any]:
        """See Contestant."""
        self.asked.append((len(prompts), max_tokens))
        answers = [(prompt + [7] * self._num_tokens)[:max_tokens] for prompt in prompts]
        behind = sum(len(answer) - 1 for answer in answers)
        return self._first_s + behind * self._ms / 1e3, answers


def four(ours: Sequence[float], theirs: Sequence[float]) -> dict[tuple[str, str], Paced]:
    """Milliseconds per token without drafts and with."""
    return {
        (system, way): Paced(ms)
        for system, pace in ((OURS, ours), (VLLM, theirs))
        for way, ms in zip((OFF, DRAFTS), pace, strict=True)
    }


def test_first_tokens_are_no_part_of_a_pace() -> None:
    turn = turn_of(Paced(4.0, first_s=100.0), [[[1], [2]], [[3]]], 10)
    assert turn.ms_per_token == pytest.approx(4.0)
    assert [text[0] for text in turn.texts] == [1, 2, 3]


def test_an_engine_that_takes_no_time_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="0 tokens behind the first ones"):
        turn_of(Paced(1.0, num_tokens=0), [[[1]]], 10)


def test_one_stream_is_asked_prompt_by_prompt_and_many_at_once() -> None:
    assert Work("copying", 1).batches(PROMPTS["copying"]) == [[[1]], [[2]], [[3]]]
    (batch,) = Work("copying", 16).batches(PROMPTS["copying"])
    assert len(batch) == 48 and batch[:4] == [[1], [2], [3], [1]]


def test_gains_of_both_and_their_ratio_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    systems = four([3.0, 1.5], [20.0, 16.0])
    works = [Work("copying", 1), Work("chat", 4)]
    tables = take_rounds(systems, PROMPTS, works, rounds=2, max_tokens=10)
    gains = tables[0].rows[0]
    assert gains.name == "copying, 1 stream: gain by drafts"
    assert gains.taken == {OURS: [pytest.approx(2.0)] * 2, VLLM: [pytest.approx(1.25)] * 2}
    assert gains.ratio == pytest.approx(1.6)
    with_drafts = tables[1].rows[2]
    assert (with_drafts.name, with_drafts.unit) == ("chat, 4 streams, with drafts", "ms/token")
    assert with_drafts.ratio == pytest.approx(16.0 / 1.5)
    assert tables[1].alike == [(12, 12)] * 2
    tables[1].print()
    assert "answers of vLLM that drafts did not change: 24 of 24" in capsys.readouterr().out


def test_the_first_round_does_not_count_and_all_are_asked_the_same() -> None:
    systems = four([3.0, 1.5], [20.0, 16.0])
    (table,) = take_rounds(systems, PROMPTS, [Work("chat", 1)], rounds=1, max_tokens=10)
    assert len(table.rows[0].taken[OURS]) == 1
    asked = [system.asked for system in systems.values()]
    assert asked == [[(1, 1), (1, 10)] * 4] * 4


def test_drafts_that_change_a_text_of_ours_are_an_error_and_of_vllm_a_number() -> None:
    systems = four([3.0, 1.5], [20.0, 16.0])
    systems[VLLM, DRAFTS] = Paced(16.0, num_tokens=5)
    (table,) = take_rounds(systems, PROMPTS, [Work("chat", 1)], rounds=1, max_tokens=10)
    assert table.alike == [(0, 2)]
    systems[OURS, DRAFTS] = Paced(1.5, num_tokens=5)
    with pytest.raises(RuntimeError, match="chat, 1 stream: answers with drafts differ"):
        take_rounds(systems, PROMPTS, [Work("chat", 1)], rounds=1, max_tokens=10)


def test_vllm_is_told_of_its_own_lookup_and_ours_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    peer = Entry(name="vllm", command=("python", "runner_vllm.py", "folder", "2"), env={})
    monkeypatch.setattr(bench_speculation_peers, "safetensors_folder", lambda: tmp_path)
    monkeypatch.setattr(bench_speculation_peers, "peer_entry", lambda *_: peer)
    ours_off, ours, vllm_off, vllm = entries(2, 16, weights="auto", lookup=LOOKUP)
    assert ours_off.command[-5:] == ("--until-end", "--max-seqs", "16", "--speculation", "off")
    assert ours.command[-1] == "ngram"
    assert runner().settings(vllm_off.command[2:]) == (True, {"max_num_seqs": 16})
    assert runner().settings(vllm.command[2:]) == (
        True,
        {"max_num_seqs": 16, "speculative_config": LOOKUP},
    )
    assert runner().settings(("folder", "2")) == (False, {})


def test_without_vllm_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_speculation_peers, "safetensors_folder", lambda: None)
    with pytest.raises(SystemExit, match="vllm is not installed"):
        entries(2, 16, weights="auto", lookup=json.loads("{}"))


def test_no_turn_has_fewer_answers_than_prompts() -> None:
    assert turn_of(Paced(1.0), [[[1], [2]]], 4) == Turn(
        pytest.approx(1.0), [[1, 7, 7, 7], [2, 7, 7, 7]]
    )


def runner() -> ModuleType:
    """vLLM's, which runs in an environment of its own."""
    spec = importlib.util.spec_from_file_location("runner_vllm", HERE / "runner_vllm.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
