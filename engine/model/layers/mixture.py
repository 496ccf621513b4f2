"""A mixture of experts: a row goes to the few that its router chooses, and to the shared ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.models.card import MixtureConfig
from engine.model.expert_picks import ExpertPicks
from engine.model.layers.feed_forward import GatedMlp
from engine.model.weights.mixture_weights import MixtureWeights, RoutedWeights, SharedWeights
from kernels.experts import GroupRank, RoutingRule, ScoreFunction
from kernels.gated_mul import GateActivation
from kernels.linear import Linear
from kernels.placed_experts import ExpertGroups, PlacedExperts
from kernels.tape.kernel_set import KernelSet
from kernels.tape.mixture_operations import (
    AddRows,
    CountPicks,
    ExchangeExperts,
    RouteExperts,
    RunExperts,
)
from kernels.tape.rows import Rows
from kernels.tape.tape import Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """See FeedForward."""

    router: Linear
    router_bias: torch.Tensor | None  # float32 [num_experts]
    rule: RoutingRule
    experts: PlacedExperts
    picks: ExpertPicks | None  # of this layer; None: not counted
    shared: GatedMlp | None

    @property
    def num_bytes(self) -> int:
        """See FeedForward."""
        shared = 0 if self.shared is None else self.shared.num_bytes
        return self.router.num_bytes + self.experts.num_bytes + shared

    def record(self, tape: Tape, x: Rows) -> Rows:
        """See FeedForward. Ranks that split the rows have all columns of the shared experts."""
        ids, weights = self._choose(tape, x)
        routed = tape.rows("routed", x.width)
        self._run(tape, x, ids, weights, routed)
        if self.shared is not None:
            tape.add(AddRows(rows=routed, addend=self.shared.record_share(tape, x)))
        return routed if tape.exchange is not None else tape.all_reduce(routed)

    def _choose(self, tape: Tape, x: Rows) -> tuple[Rows, Rows]:
        """Ids and weights of each row's experts."""
        rule, bias = self.rule, self.router_bias
        logits = tape.logits(self.router, x, "router logits")
        ids = tape.rows("expert ids", rule.num_chosen, torch.int64)
        weights = tape.rows("expert weights", rule.num_chosen, torch.float32)
        tape.add(RouteExperts(logits=logits, bias=bias, rule=rule, ids=ids, weights=weights))
        if self.picks is not None:
            tape.add(CountPicks(counts=self.picks.counts, each=self.picks.each, ids=ids))
        return ids, weights

    def _run(self, tape: Tape, x: Rows, ids: Rows, weights: Rows, out: Rows) -> None:
        """The chosen experts' sum, or of ranks that all have all rows this one's share of it."""
        experts, exchange = self.experts, tape.exchange
        if exchange is None:
            tape.add(RunExperts(experts=experts, x=x, ids=ids, weights=weights, out=out))
            return
        tape.add(
            ExchangeExperts(
                experts=experts, collective=exchange, x=x, ids=ids, weights=weights, out=out
            )
        )


def build_mixture(
    kernels: KernelSet,
    weights: MixtureWeights,
    config: MixtureConfig,
    experts: PlacedExperts,
    picks: ExpertPicks | None,
) -> Mixture:
    """Takes the weights over, but for those of routed experts: see `build_experts`."""
    return Mixture(
        router=kernels.pack_linear(weights.router),
        router_bias=weights.router_bias,
        rule=routing_rule(config),
        experts=experts,
        picks=picks,
        shared=None if weights.shared is None else _shared(kernels, weights.shared),
    )


def build_experts(
    kernels: KernelSet, weights: RoutedWeights, groups: ExpertGroups
) -> PlacedExperts:
    """Takes the weights over."""
    experts = kernels.pack_experts(weights.gate_up, weights.down, weights.held)
    return PlacedExperts(experts, groups)


def routing_rule(config: MixtureConfig) -> RoutingRule:
    """A configuration in the kernels' words."""
    return RoutingRule(
        num_chosen=config.num_experts_per_token,
        score=ScoreFunction(config.score.value),
        normalizes_weights=config.normalizes_weights,
        scaling_factor=config.scaling_factor,
        num_groups=config.num_groups,
        num_chosen_groups=config.num_chosen_groups,
        group_rank=GroupRank(config.group_score.value),
    )


def _shared(kernels: KernelSet, weights: SharedWeights) -> GatedMlp:
    return GatedMlp(
        kernels.pack_linear(weights.gate_up),
        kernels.pack_linear(weights.down),
        GateActivation.SILU,
    )
