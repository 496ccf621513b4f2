"""The routed experts of a rank's decoder: where those of each layer are, and how that changes.

    stage(layer, placement)   any rank, any time: begins to read what it gains by that placement
    place(layer, placement)   all ranks, between the same two steps: the layer is exchanged at all
                              of them, or, where one has not read all yet, at none

What ranks think of a placement is compared before anything changes.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from cluster.errors import InternalError
from cluster.models.expert_placement import ExpertPlacement
from cluster.models.model_split import ModelSplit
from engine.model.expert_picks import ExpertPicks
from engine.model.expert_staging import ExpertStaging
from engine.model.weights.decoder_weights import DecoderWeights
from kernels.experts import Experts, HeldExperts
from kernels.placed_experts import PlacedExperts
from kernels.tape.collective import Collective
from kernels.tape.kernel_set import KernelSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSource:
    """Where a rank's experts come from, and how often each of them is chosen."""

    reopen: Callable[[], DecoderWeights]
    kernels: KernelSet
    picks: ExpertPicks
    """Of all layers, counted up by every step of this rank."""

    def reader(self, layer: int, placement: ExpertPlacement) -> Callable[[int], Experts]:
        """Reads and packs an expert that the rank has by that placement. The checkpoint is opened
        with the first one, and closed when the reader is dropped."""
        weights = functools.cache(self.reopen)

        def read(expert: int) -> Experts:
            one = weights().experts(layer, placement, [expert])
            return self.kernels.pack_experts(one.gate_up, one.down, one.held)

        return read


class RoutedExperts:
    """All layers'. Empty for a model without a mixture."""

    def __init__(
        self,
        split: ModelSplit,
        layers: Mapping[int, PlacedExperts],
        source: ExpertSource | None,
        collective: Collective | None,
    ) -> None:
        """`source` and `collective`: None for a single rank, whose experts stay."""
        self._split, self._layers = split, layers
        self._source, self._collective = source, collective
        self._placements = dict.fromkeys(layers, split.expert_placement)
        self._staged: ExpertStaging | None = None

    @property
    def placements(self) -> Mapping[int, ExpertPlacement]:
        """Of each layer that has experts."""
        return self._placements

    def compute_alone(self, x: torch.Tensor) -> None:
        """Every layer's, of rows [num_rows, hidden] that all chose the first expert held here. No
        other rank takes part, nothing is counted, and nobody gets what comes out."""
        for placed in self._layers.values():
            ids = torch.full((len(x), 1), placed.held.ids[0], device=x.device)
            placed(x, ids, torch.ones(ids.shape, device=x.device))

    def total_picks(self) -> torch.Tensor:
        """int64 [num_layers, num_experts]: how often each expert was chosen since the model was
        loaded, zeros in a layer without. All ranks ask between the same two steps, and all get the
        same. Raises ValueError where nothing is counted: of a single rank."""
        picks, collective = self._require_source().picks.counts, self._collective
        if not self._split.row_sharing.exchanges_rows or collective is None:
            return picks.clone()  # every rank routes all rows
        of_ranks = collective.all_gather(picks.view(1, -1))
        collective.wait_until_landed()
        return of_ranks.view(collective.world_size, *picks.shape).sum(0)

    def uncounted(self) -> AbstractContextManager[None]:
        """What is computed meanwhile is nobody's: it says nothing of the load of experts. Raises
        ValueError where nothing is counted."""
        return self._require_source().picks.uncounted()

    def stage(self, layer: int, placement: ExpertPlacement) -> ExpertStaging:
        """What to read before `place`. One layer at a time: what was staged before is dropped.

        Raises ValueError for a placement that is not the layer's next, and of a single rank.
        """
        self._require_next(layer, placement)
        held = HeldExperts(
            placement.held_by(self._split.expert_group), num_experts=placement.num_experts
        )
        read = self._require_source().reader(layer, placement)
        self._staged = ExpertStaging(layer, placement, self._layers[layer], held, read)
        return self._staged

    def drop_staged(self) -> None:
        """Gives back what was read for a placement that will not be."""
        self._staged = None

    def place(self, layer: int, placement: ExpertPlacement) -> bool:
        """Exchanges a layer's experts, from the next step on; False: at no rank, since one of them
        has not read all that it gains. All ranks call it between the same two steps.

        Raises InternalError, at all ranks and before anything changes, where they do not mean the
        same placement; ValueError for one that is not the layer's next.
        """
        self._require_next(layer, placement)
        made = self._made_for(layer, placement)
        if not self._all_agree(layer, placement, is_ready=made is not None):
            return False
        assert made is not None
        self._layers[layer].become(made, torch.tensor(placement.groups))
        self._placements[layer] = placement
        self._staged = None
        return True

    def _made_for(self, layer: int, placement: ExpertPlacement) -> Experts | None:
        staged = self._staged
        if staged is None or (staged.layer, staged.placement) != (layer, placement):
            return None
        return staged.made

    def _all_agree(self, layer: int, placement: ExpertPlacement, *, is_ready: bool) -> bool:
        """Whether all ranks are ready for this."""
        if self._collective is None or self._collective.world_size == 1:
            return is_ready
        table = zlib.crc32(repr(placement.groups).encode())
        own = torch.tensor([[layer, placement.generation, table, int(is_ready)]])
        device = self._require_source().picks.counts.device
        gathered = self._collective.all_gather(own.to(device)).view(-1, 4)
        self._collective.wait_until_landed()
        told = gathered.tolist()
        if any(rank[:3] != told[0][:3] for rank in told):
            raise InternalError(
                f"ranks do not mean the same placement (layer, generation, table): "
                f"{[rank[:3] for rank in told]}; the group is started anew"
            )
        return all(rank[3] for rank in told)

    def _require_next(self, layer: int, placement: ExpertPlacement) -> None:
        current = self._placements[layer]
        same = (current.num_experts, current.num_groups)
        if (placement.num_experts, placement.num_groups) != same:
            raise ValueError(f"a table of {placement.num_experts} experts for layer {layer}")
        if placement.generation != current.generation + 1:
            raise ValueError(
                f"generation {placement.generation} of layer {layer}, which is at "
                f"{current.generation}"
            )

    def _require_source(self) -> ExpertSource:
        if self._source is None:
            raise ValueError("the experts of a single rank are not counted and do not move")
        return self._source
