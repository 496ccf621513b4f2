"""What grammars took since the engine's start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GrammarMeter:
    """Compilations are counted by their thread, masks by theirs."""

    num_compiled: int = 0
    compile_s: float = 0.0
    num_masks: int = 0
    mask_s: float = 0.0
    """As long as steps might have had to wait, had nothing run beside them."""
