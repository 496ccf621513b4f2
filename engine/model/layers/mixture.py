"""A mixture of experts: a row goes to the few that its router chooses, and to the shared ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from cluster.models.card import MixtureConfig
from engine.model.layers.feed_forward import GatedMlp
from engine.model.weights.mixture_weights import MixtureWeights, SharedWeights
from kernels.experts import Experts, GroupRank, RoutingRule, ScoreFunction
from kernels.gated_mul import GateActivation
from kernels.linear import Linear
from kernels.tape.kernel_set import KernelSet
from kernels.tape.mixture_operations import AddRows, RouteExperts, RunExperts
from kernels.tape.rows import Rows
from kernels.tape.tape import Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """See FeedForward."""

    router: Linear
    router_bias: torch.Tensor | None  # float32 [num_experts]
    rule: RoutingRule
    experts: Experts
    shared: GatedMlp | None

    @property
    def num_bytes(self) -> int:
        """See FeedForward."""
        shared = 0 if self.shared is None else self.shared.num_bytes
        return self.router.num_bytes + self.experts.num_bytes + shared

    def record(self, tape: Tape, x: Rows) -> Rows:
        """See FeedForward."""
        routed = self._routed(tape, x)
        if self.shared is not None:
            tape.add(AddRows(rows=routed, addend=self.shared.record_share(tape, x)))
        return tape.all_reduce(routed)

    def _routed(self, tape: Tape, x: Rows) -> Rows:
        """This rank's share of the chosen experts' sum."""
        rule, bias = self.rule, self.router_bias
        logits = tape.logits(self.router, x, "router logits")
        ids = tape.rows("expert ids", rule.num_chosen, torch.int64)
        weights = tape.rows("expert weights", rule.num_chosen, torch.float32)
        tape.add(RouteExperts(logits=logits, bias=bias, rule=rule, ids=ids, weights=weights))
        out = tape.rows("routed", x.width)
        tape.add(RunExperts(experts=self.experts, x=x, ids=ids, weights=weights, out=out))
        return out


def build_mixture(kernels: KernelSet, weights: MixtureWeights, config: MixtureConfig) -> Mixture:
    """Takes the weights over."""
    return Mixture(
        router=kernels.pack_linear(weights.router),
        router_bias=weights.router_bias,
        rule=routing_rule(config),
        experts=kernels.pack_experts(weights.gate_up, weights.down, weights.first_expert),
        shared=None if weights.shared is None else _shared(kernels, weights.shared),
    )


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
