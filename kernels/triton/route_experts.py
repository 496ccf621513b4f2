"""Which experts a row goes to: scores, the best groups, the best experts and their weights."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.door import require_contiguous, require_same_device
from kernels.experts import GroupRank, RoutingRule, ScoreFunction, check_routing
from kernels.reference.route_experts import SMALLEST_SUM
from kernels.triton.launch import next_power_of_2, on_device_of


@triton.jit
def _first_of(values, value, places, WIDTH: tl.constexpr):
    """The first place with this value."""
    return tl.min(tl.where(values == value, places, WIDTH), axis=0)


@triton.jit
def _of_best_groups(
    ranked,
    experts,
    members,
    WIDTH: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    NUM_CHOSEN_GROUPS: tl.constexpr,
    BEST_TWO: tl.constexpr,
):
    """The ranks of experts in the best groups; -infinity for all others."""
    ranks = tl.full([WIDTH], float("-inf"), tl.float32)  # of group g, in its first member
    for group in range(NUM_GROUPS):
        mine = tl.where(experts // members == group, ranked, float("-inf"))
        best = tl.max(mine, axis=0)
        rank = best
        if BEST_TWO:
            others = experts != _first_of(mine, best, experts, WIDTH)
            rank += tl.max(tl.where(others, mine, float("-inf")), axis=0)
        ranks = tl.where(experts == group * members, rank, ranks)
    kept = experts < 0
    for _ in range(NUM_CHOSEN_GROUPS):
        best = _first_of(ranks, tl.max(ranks, axis=0), experts, WIDTH)
        kept = kept | (experts // members == best // members)
        ranks = tl.where(experts == best, float("-inf"), ranks)
    return tl.where(kept, ranked, float("-inf"))


# grid [num_rows]
@triton.jit
def _route_row(
    logits,
    bias,
    ids,
    weights,
    num_experts,
    members,
    scaling_factor,
    smallest_sum,
    NUM_CHOSEN: tl.constexpr,
    NUM_GROUPS: tl.constexpr,
    NUM_CHOSEN_GROUPS: tl.constexpr,
    BEST_TWO: tl.constexpr,
    IS_SOFTMAX: tl.constexpr,
    NORMALIZES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    WIDTH: tl.constexpr,
    CHOSEN_WIDTH: tl.constexpr,
):
    row, experts = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    inside = experts < num_experts
    value = tl.load(logits + row * num_experts + experts, mask=inside, other=float("-inf"))
    if IS_SOFTMAX:
        weight = tl.exp(value - tl.max(value, axis=0))
        scores = weight / tl.sum(weight, axis=0)
    else:
        scores = tl.sigmoid(value)
    ranked = scores
    if HAS_BIAS:
        ranked += tl.load(bias + experts, mask=inside, other=0.0)
    ranked = tl.where(inside, ranked, float("-inf"))
    if NUM_CHOSEN_GROUPS < NUM_GROUPS:
        ranked = _of_best_groups(
            ranked, experts, members, WIDTH, NUM_GROUPS, NUM_CHOSEN_GROUPS, BEST_TWO
        )
    places = tl.arange(0, CHOSEN_WIDTH)
    chosen = tl.zeros([CHOSEN_WIDTH], tl.int64)
    chosen_scores = tl.zeros([CHOSEN_WIDTH], tl.float32)
    for place in range(NUM_CHOSEN):
        best = _first_of(ranked, tl.max(ranked, axis=0), experts, WIDTH)
        score = tl.sum(tl.where(experts == best, scores, 0.0), axis=0)
        chosen = tl.where(places == place, best.to(tl.int64), chosen)
        chosen_scores = tl.where(places == place, score, chosen_scores)
        ranked = tl.where(experts == best, float("-inf"), ranked)
    if NORMALIZES:
        chosen_scores /= tl.sum(chosen_scores, axis=0) + smallest_sum
    at, wanted = row * NUM_CHOSEN + places, places < NUM_CHOSEN
    tl.store(ids + at, chosen, mask=wanted)
    tl.store(weights + at, chosen_scores * scaling_factor, mask=wanted)


def route_experts(
    logits: torch.Tensor, bias: torch.Tensor | None, rule: RoutingRule
) -> tuple[torch.Tensor, torch.Tensor]:
    """See kernels/reference/route_experts.py; of equals the first is chosen."""
    check_routing(logits, bias, rule)
    require_contiguous("logits", logits)
    if bias is not None:
        require_same_device(logits, bias)
    num_rows, num_experts = logits.shape
    ids = torch.empty((num_rows, rule.num_chosen), dtype=torch.int64, device=logits.device)
    weights = torch.empty(ids.shape, dtype=torch.float32, device=logits.device)
    if num_rows:
        with on_device_of(logits):
            _route_row[(num_rows,)](
                logits,
                bias,
                ids,
                weights,
                num_experts,
                num_experts // rule.num_groups,
                rule.scaling_factor,
                SMALLEST_SUM,
                NUM_CHOSEN=rule.num_chosen,
                NUM_GROUPS=rule.num_groups,
                NUM_CHOSEN_GROUPS=rule.num_chosen_groups,
                BEST_TWO=rule.group_rank is GroupRank.BEST_TWO,
                IS_SOFTMAX=rule.score is ScoreFunction.SOFTMAX,
                NORMALIZES=rule.normalizes_weights,
                HAS_BIAS=bias is not None,
                WIDTH=next_power_of_2(num_experts),
                CHOSEN_WIDTH=next_power_of_2(rule.num_chosen),
                num_warps=1,
            )
    return ids, weights
