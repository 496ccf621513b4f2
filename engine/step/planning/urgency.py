"""In which order prompts are computed: the one that is due first.

A prompt is due STRETCH times its own computing time after it came, and never later than its
request's deadline. So a short prompt goes before a long one that has just come, but not before one
that has been due: whatever arrives from then on is due later. Nobody starves: a prompt waits for
nothing that came after its own due time. The order does not depend on what is already computed,
else two long prompts would take turns and both be late.
"""

from __future__ import annotations

from engine.step.planning.step_cost import StepCost

STRETCH = 4.0
"""How much longer than alone a prompt may take before newer ones wait for it."""
_UNMEASURED = StepCost(token_ms=1.0)
"""Only the order matters before the first chunk was measured."""


def due_ms(arrived_ms: float, *, num_tokens: int, deadline_ms: float, cost: StepCost) -> float:
    """On the clock of `arrived_ms`, for a prompt of which `num_tokens` have to be computed."""
    cost = cost if cost.knows_chunks else _UNMEASURED
    return min(arrived_ms + STRETCH * cost.chunk_ms(num_tokens, 0), deadline_ms)
