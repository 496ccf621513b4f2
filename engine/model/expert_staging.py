"""What a rank lacks for a layer's next placement, read while steps go on: one expert at a time.

    wanted -> read_next, read_next, ... -> made
                    '-> raises: read again, or given up

Read from the checkpoint, whose pages the system has in its cache since the model was loaded, and
packed as the layer's own are. Until the layer is exchanged a rank holds these besides all others.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from cluster.models.expert_placement import ExpertPlacement
from kernels.experts import Experts, HeldExperts


class ExpertStaging:
    """One layer's at one rank. `read_next` from any thread, one at a time; the rest from any."""

    def __init__(
        self,
        layer: int,
        placement: ExpertPlacement,
        current: Experts,
        held: HeldExperts,
        read: Callable[[int], Experts],
    ) -> None:
        """`held` is what the rank has by `placement`; `read` packs one expert."""
        self.layer, self.placement = layer, placement
        self._current, self._held, self._read = current, held, read
        self._missing = [expert for expert in held.ids if expert not in current.held.ids]
        self._gained: list[Experts] = []
        self._made: Experts | None = None

    @property
    def num_missing(self) -> int:
        """Experts that have not been read yet."""
        return len(self._missing) - len(self._gained)

    @property
    def made(self) -> Experts | None:
        """What the layer becomes; None: there is something left to be read."""
        return self._made

    @property
    def num_bytes(self) -> int:
        """Memory of what has been read so far."""
        return sum(expert.num_bytes for expert in self._gained)

    @torch.inference_mode()
    def read_next(self) -> bool:
        """Reads one expert more; False: nothing is left. Raises what the checkpoint raises, after
        which it may be called again."""
        if self.num_missing:
            self._gained.append(self._read(self._missing[len(self._gained)]))
        if not self.num_missing and self._made is None:
            self._made = self._current.with_experts(self._held, self._gained)
        return self._made is None

    def read_all(self) -> None:
        """What is left, at once."""
        while self.read_next():
            pass
