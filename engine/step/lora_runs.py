"""Which LoRA ranks of the stacks are whose: runs, the first that is long enough."""

from __future__ import annotations


class LoraRuns:
    """Of one bank. Runs never move: what lies there is read by steps."""

    def __init__(self, num_lora_ranks: int) -> None:
        self.num_lora_ranks = num_lora_ranks
        self._taken: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        """LoRA ranks, in one run or several."""
        return self.num_lora_ranks - sum(self._taken.values())

    def take(self, size: int) -> int | None:
        """The first rank of a run of this size; None: there is none."""
        first = 0
        for start in sorted(self._taken):
            if start - first >= size:
                break
            first = start + self._taken[start]
        if self.num_lora_ranks - first < size:
            return None
        self._taken[first] = size
        return first

    def give_back(self, start: int) -> None:
        """The run that begins there is free."""
        del self._taken[start]
