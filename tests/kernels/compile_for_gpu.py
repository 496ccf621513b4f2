"""Compiles Triton kernels for GPUs that are not there; in a process of its own.

    python -m tests.kernels.compile_for_gpu [attention norms ...]

Prints a line per kernel: group, name, registers per thread, bytes spilled, bytes that may be, bytes
of shared memory, programs that a processor holds at once, and how many the launch counts on,
instructions per byte of KV and how many there may be, and traits that are missing.
"""

from __future__ import annotations

import sys

from kernels.triton.gpu import HOPPER, Gpu
from tests.kernels.compile_adapters import ADAPTERS
from tests.kernels.compile_attention import ATTENTION, MORE_ATTENTION, RESIDENT, other_attention
from tests.kernels.compile_case import Case, compile_case
from tests.kernels.compile_elementwise import ELEMENTWISE
from tests.kernels.compile_latent import LATENTS, other_latents
from tests.kernels.compile_low_bit import LOW_BIT
from tests.kernels.compile_mixture import MIXTURE
from tests.kernels.compile_sampling import SAMPLING
from tests.kernels.gpus import ADA, AMPERE, BLACKWELL

GPUS = {"ampere": AMPERE, "ada": ADA, "hopper": HOPPER, "blackwell": BLACKWELL}

CASES: dict[str, tuple[Gpu, list[Case]]] = {
    "attention": (HOPPER, ATTENTION),
    "more_attention": (HOPPER, MORE_ATTENTION),
    "resident": (HOPPER, RESIDENT),
    "latent": (HOPPER, LATENTS),
    "adapters": (HOPPER, ADAPTERS),
    "elementwise": (HOPPER, ELEMENTWISE),
    "low_bit": (HOPPER, LOW_BIT),
    "mixture": (HOPPER, MIXTURE),
    "sampling": (HOPPER, SAMPLING),
    **{
        name: (gpu, [*other_attention(gpu), *other_latents(gpu), *ADAPTERS])
        for name, gpu in GPUS.items()
        if gpu is not HOPPER
    },
    "small": (ADA, [*LOW_BIT, *MIXTURE]),
}


def main() -> None:
    """Those groups that are named, or all."""
    for group in sys.argv[1:] or CASES:
        gpu, cases = CASES[group]
        for case in cases:
            needs = compile_case(case, gpu)
            spilled = (needs.spilled_bytes, case.may_spill_bytes)
            programs = (needs.resident(case.num_warps), case.programs_per_processor)
            sizes = (needs.registers, *spilled, needs.shared_bytes, *programs)
            per_byte = needs.loop_instructions / max(1, case.loop_bytes)
            code = (f"{per_byte:.3f}", case.max_per_byte, ",".join(needs.missing) or "-")
            print(group, case.name, *sizes, *code, flush=True)


if __name__ == "__main__":
    main()
