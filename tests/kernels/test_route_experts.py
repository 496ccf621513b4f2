"""Routing, written out for one row at a time beside the reference."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from kernels.dispatch.kernel_sets import REFERENCE
from kernels.experts import GroupRank, RoutingRule, ScoreFunction
from tests.kernels.kernel_sets import CPU_SETS, cpu_set, random

MIXTRAL = RoutingRule(num_chosen=2)
QWEN3 = RoutingRule(num_chosen=3, normalizes_weights=False)
DEEPSEEK_V2 = RoutingRule(
    num_chosen=3,
    normalizes_weights=False,
    scaling_factor=16.0,
    num_groups=4,
    num_chosen_groups=2,
)
DEEPSEEK_V3 = RoutingRule(
    num_chosen=3,
    score=ScoreFunction.SIGMOID,
    scaling_factor=2.5,
    num_groups=4,
    num_chosen_groups=2,
    group_rank=GroupRank.BEST_TWO,
)
RULES = {"mixtral": MIXTRAL, "qwen 3": QWEN3, "v2": DEEPSEEK_V2, "v3": DEEPSEEK_V3}


def by_hand(logits: list[float], bias: list[float], rule: RoutingRule) -> dict[int, float]:
    """Expert -> weight."""
    if rule.score is ScoreFunction.SOFTMAX:
        total = sum(map(math.exp, logits))
        scores = [math.exp(logit) / total for logit in logits]
    else:
        scores = [1 / (1 + math.exp(-logit)) for logit in logits]
    ranked = [score + extra for score, extra in zip(scores, bias, strict=True)]
    size = len(logits) // rule.num_groups
    counted = 1 if rule.group_rank is GroupRank.BEST else 2
    groups = sorted(
        range(rule.num_groups),
        key=lambda g: -sum(sorted(ranked[g * size : (g + 1) * size])[-counted:]),
    )[: rule.num_chosen_groups]
    allowed = [e for e in range(len(logits)) if e // size in groups]
    chosen = sorted(allowed, key=lambda e: -ranked[e])[: rule.num_chosen]
    total = sum(scores[e] for e in chosen) if rule.normalizes_weights else 1.0
    return {e: scores[e] / total * rule.scaling_factor for e in chosen}


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("name", ["reference", *CPU_SETS])
def test_routing_is_what_is_written_out(name: str, rule: RoutingRule, has_bias: bool) -> None:
    logits = random(30, 12, dtype=torch.float32)
    bias = random(12, dtype=torch.float32, seed=1) if has_bias else None
    ids, weights = cpu_set(name).route_experts(logits, bias, rule)
    assert ids.dtype == torch.int64
    assert weights.dtype == torch.float32
    for row in range(30):
        stated = [0.0] * 12 if bias is None else bias.tolist()
        expected = by_hand(logits[row].tolist(), stated, rule)
        ours = dict(zip(ids[row].tolist(), weights[row].tolist(), strict=True))
        assert ours.keys() == expected.keys()
        assert ours == pytest.approx(expected, rel=1e-5)


def test_a_bias_counts_for_the_choice_but_not_for_the_weights() -> None:
    logits = torch.tensor([[3.0, 2.0, -4.0, 0.0]])
    rule = RoutingRule(num_chosen=1, score=ScoreFunction.SIGMOID, normalizes_weights=False)
    ids, weights = REFERENCE.route_experts(logits, torch.tensor([0.0, 0.0, 5.0, 0.0]), rule)
    assert ids.tolist() == [[2]]
    assert weights[0, 0].item() == pytest.approx(1 / (1 + math.exp(4.0)))


def test_a_group_of_low_scores_is_still_chosen_from_when_biases_are_negative() -> None:
    """A masked score of zero, as some implementations have it, would win over a negative one."""
    rule = replace(DEEPSEEK_V3, num_groups=2, num_chosen_groups=1, num_chosen=2)
    bias = torch.full((4,), -9.0)
    ids, _ = REFERENCE.route_experts(torch.tensor([[0.0, 0.1, 5.0, 6.0]]), bias, rule)
    assert sorted(ids[0].tolist()) == [2, 3]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_no_rows_go_nowhere(rule: RoutingRule) -> None:
    """A step that wants no logits asks for this in the last layer."""
    ids, weights = REFERENCE.route_experts(torch.zeros(0, 12), None, rule)
    assert ids.shape == weights.shape == (0, rule.num_chosen)


def test_scores_that_are_all_zero_give_weights_of_zero() -> None:
    logits = torch.full((1, 12), -200.0)
    _, weights = REFERENCE.route_experts(logits, None, DEEPSEEK_V3)
    assert weights.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"num_groups": 5}, "12 experts in 5 groups"),
        ({"num_chosen_groups": 5}, "5 groups chosen of 4"),
        ({"num_chosen": 7}, "7 experts chosen from 2 groups of 3"),
        ({"num_groups": 12}, "groups of one expert"),
    ],
)
def test_rules_that_cannot_be_are_refused(changes: dict[str, int], problem: str) -> None:
    rule = replace(DEEPSEEK_V3, **{"num_chosen": 2, **changes})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=problem):
        REFERENCE.route_experts(torch.zeros(1, 12), None, rule)


def test_logits_of_a_narrow_type_are_refused() -> None:
    with pytest.raises(ValueError, match=r"logits is torch.bfloat16; needed: torch.float32"):
        REFERENCE.route_experts(torch.zeros(1, 12, dtype=torch.bfloat16), None, MIXTRAL)
