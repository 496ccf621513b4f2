"""Which Triton kernels would be compiled after a model was loaded: run in a process of its own.

    python -m tests.kernels.compiles_while_serving FOLDER [FAMILY ...]

The host code is the real one: the Triton kernel set, the CUDA runner, its warm-up, sampling on the
device. The driver does nothing, and a "compile" only notes what would have been compiled. Prints
for each family its name with the number of compiles at load, and a line per compile that a step
would have had to wait for. Each has a fork of its own, in which nothing has been compiled yet.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from cluster.sampling import SamplingParams
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model import decoder as decoder_module
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.runner.cuda_runner import CudaRunner, GraphLimits
from engine.runner.model_runner import LaunchingRunner, ModelRunner
from engine.runner.warm_up import WarmUpLimits, warm_up
from engine.sampling import device_draw
from engine.sampling.logits import SamplingRow
from kernels.dispatch.kernel_sets import triton_set
from kernels.triton.sample import sample as triton_sample
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.model.layers.test_latent_families import LATENT
from tests.engine.model.tiny_llama import ragged_batch
from tests.engine.runner.rerun_graphs import RerunGraphs

MAX_SEQS, MAX_CONTEXT, BLOCK, NUM_BLOCKS = 19, 256, 16, 400
VOCAB = 20_000
"""Several splits of sampling."""


class IdleDriver:
    """A driver of an H100 that is not there."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


class NotedKernel:
    """What a compile leaves behind here."""

    function = packed_metadata = None

    def launch_metadata(self, *_: object) -> None:
        return None

    def run(self, *_: object) -> None:
        return None


def note_compiles(noted: list[str]) -> None:
    """From here on nothing is compiled; what would be is added to `noted`."""

    def note(
        self: Any, key: object, signature: object, device: int, constexprs: Any, *rest: Any
    ) -> Any:
        names = self.arg_names
        seen = {names[path[0]]: value for path, value in constexprs.items()}
        plain = [names[path[0]] for path, value in rest[1].items() if not value]
        noted.append(f"{self.__name__} {seen} unaligned: {plain}")
        kernel = NotedKernel()
        self.device_caches[device][0][key] = kernel
        return kernel

    JITFunction._do_compile = note
    triton.runtime.driver.set_active(IdleDriver())


class Steps:
    """Random batches: prompts, decodes, both; each sequence has blocks of its own."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def batch(self, num_decodes: int, num_prompts: int) -> RaggedBatch:
        chunks = [self._chunk(1) for _ in range(num_decodes)]
        chunks += [self._chunk(self.chance.choice([2, 5, 17, 64, 100])) for _ in range(num_prompts)]
        whole = ragged_batch(chunks, block_size=BLOCK)
        wanted = whole.query_starts[1:].long() - 1
        return replace(whole, logit_rows=wanted)

    def _chunk(self, num_tokens: int) -> tuple[list[int], int, list[int]]:
        before = self.chance.randrange(MAX_CONTEXT - num_tokens)
        num_blocks = -(-(before + num_tokens) // BLOCK)
        blocks = [self.chance.randrange(NUM_BLOCKS) for _ in range(num_blocks)]
        return [self.chance.randrange(VOCAB) for _ in range(num_tokens)], before, blocks

    def rows(self, count: int) -> list[SamplingRow]:
        kinds = [
            SamplingParams(max_tokens=9, temperature=0.0),
            SamplingParams(max_tokens=9, temperature=0.8, seed=1),
            SamplingParams(max_tokens=9, temperature=0.8, seed=1, top_k=20),
            SamplingParams(max_tokens=9, temperature=0.8, seed=1, top_p=0.9, min_p=0.1),
        ]
        params = self.chance.choice([kinds[:1], kinds[:2], kinds])
        return [
            SamplingRow(
                logit_row=row,
                params=self.chance.choice(params),
                choice=0,
                token_ids=[0],
                num_prompt=1,
            )
            for row in range(count)
        ]


class WaitingRunner:
    """What a group's conductor has: a ModelRunner that launches nothing."""

    def __init__(self, runner: CudaRunner) -> None:
        self.copy_blocks, self.forward = runner.copy_blocks, runner.forward


def serve(runner: ModelRunner, steps: Steps, num_steps: int) -> None:
    """Prompts alone, decodes launched, or sampled once they are there, and not, both together."""
    for _ in range(num_steps):
        kind, count = steps.chance.randrange(4), steps.chance.randint(1, MAX_SEQS)
        if kind == 0 and isinstance(runner, LaunchingRunner):
            runner.launch(steps.batch(count, 0), steps.rows(count), [None] * count)
        elif kind == 0:
            logits = runner.forward(steps.batch(count, 0))
            device_draw.draw_on_device(logits, steps.rows(count))
        elif kind == 1:
            runner.forward(steps.batch(count, 0))
        else:
            runner.forward(steps.batch(count * (kind - 2), steps.chance.randint(1, 4)))


@dataclass(frozen=True, slots=True)
class Family:
    """A model, and in what form."""

    architecture: str
    changes: dict[str, Any]
    weights: str = "full"
    kv: torch.dtype = torch.float16
    in_group: bool = False
    """As a group's conductor computes it."""


FAMILIES = {
    "llama": Family("LlamaForCausalLM", {}),
    "llama in a group": Family("LlamaForCausalLM", {}, in_group=True),
    "qwen3 in int8": Family("Qwen3ForCausalLM", {}, "int8", torch.int8),
    "llama in int4": Family("LlamaForCausalLM", {"intermediate_size": 128}, "int4"),
    "mixtral": Family("MixtralForCausalLM", {"num_local_experts": 4}),
    "deepseek v3": Family("DeepseekV3ForCausalLM", {**LATENT, "n_group": 4, "topk_group": 2}),
}


def tell(folder: Path, name: str) -> None:
    """See the head of the file."""
    family = FAMILIES[name]
    noted: list[str] = []
    note_compiles(noted)
    decoder_module.kernels_for = lambda *_: triton_set()
    device_draw.sample = triton_sample
    changes = {"vocab_size": VOCAB, "max_position_embeddings": MAX_CONTEXT, **family.changes}
    card = saved_card(random_model(family.architecture, **changes), folder)
    decoder = Decoder.load(card, torch.float16, "cpu", weights=WeightFormat(family.weights))
    pool = KvPool(KvLayout.of(card.config, BLOCK, family.kv), NUM_BLOCKS + 1, "cpu")
    limits = GraphLimits(max_num_seqs=MAX_SEQS, max_context_tokens=MAX_CONTEXT)
    made = CudaRunner(decoder, pool, limits=limits, backend=RerunGraphs(), progress=lambda *_: None)
    runner = WaitingRunner(made) if family.in_group else made
    scratch = WarmUpLimits(
        max_num_seqs=MAX_SEQS,
        max_batch_tokens=512,
        max_context_tokens=MAX_CONTEXT,
        block_size=BLOCK,
        scratch_blocks=(NUM_BLOCKS,),
        compiles=True,
    )
    warm_up(runner, scratch, lambda *_: None)
    at_load = len(noted)
    serve(runner, Steps(1), 200)
    print(f"{name}: {at_load}", *noted[at_load:], sep="\n", flush=True)


def main(folder: Path, names: list[str]) -> int:
    """One family after the other, or all; the exit code."""
    torch.set_num_threads(1)
    assert transformers.LlamaForCausalLM  # what it imports takes seconds: once, before the forks
    worst = 0
    for name in names or FAMILIES:
        child = multiprocessing.get_context("fork").Process(target=tell, args=(folder / name, name))
        child.start()
        child.join()
        worst = worst or child.exitcode or 0
    return worst


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
