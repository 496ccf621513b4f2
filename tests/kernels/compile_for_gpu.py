"""Compiles every Triton kernel for an H100. Needs no GPU; run in a process of its own.

    python -m tests.kernels.compile_for_gpu [attention norms ...]

Prints a line per kernel: name, registers per thread, bytes spilled, bytes that may be, bytes of
shared memory.
"""

from __future__ import annotations

import sys

from tests.kernels.compile_attention import ATTENTION, MORE_ATTENTION
from tests.kernels.compile_case import Case, compile_case
from tests.kernels.compile_elementwise import ELEMENTWISE
from tests.kernels.compile_latent import LATENTS
from tests.kernels.compile_low_bit import LOW_BIT
from tests.kernels.compile_mixture import MIXTURE
from tests.kernels.compile_sampling import SAMPLING

CASES: dict[str, list[Case]] = {
    "attention": ATTENTION,
    "more_attention": MORE_ATTENTION,
    "latent": LATENTS,
    "elementwise": ELEMENTWISE,
    "low_bit": LOW_BIT,
    "mixture": MIXTURE,
    "sampling": SAMPLING,
}


def main() -> None:
    """Those groups that are named, or all."""
    for group in sys.argv[1:] or CASES:
        for case in CASES[group]:
            needs = compile_case(case)
            spilled = (needs.spilled_bytes, case.may_spill_bytes)
            print(case.name, needs.registers, *spilled, needs.shared_bytes, flush=True)


if __name__ == "__main__":
    main()
