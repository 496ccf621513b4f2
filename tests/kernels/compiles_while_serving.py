"""Which Triton kernels would be compiled after a model was loaded: run in a process of its own.

    python -m tests.kernels.compiles_while_serving FOLDER [FAMILY ...]

The host code is the real one: the Triton kernel set, the CUDA runner, its warm-up, sampling on the
device. The driver does nothing, and a "compile" only notes what would have been compiled. Prints
for each family its name with the number of compiles at load, and a line per compile that a step
would have had to wait for. Each has a fork of its own, in which nothing has been compiled yet.
"""

from __future__ import annotations

import multiprocessing
import queue
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

from cluster.block_homes import BlockHomes
from cluster.models.card import ModelCard
from cluster.models.pooling import Pooling, PoolingKind
from cluster.sampling import SamplingParams
from cluster.sharding import RowSharing
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvLayout, KvPool
from engine.model import decoder as decoder_module
from engine.model.adapters.bank import AdapterRoom
from engine.model.decoder import Decoder
from engine.model.ragged_batch import RaggedBatch
from engine.runner import warm_up as warm_up_module
from engine.runner.cuda_runner import CudaRunner, GraphLimits
from engine.runner.draft_shapes import MOST_ROWS, DraftShapes
from engine.runner.model_runner import DecoderRunner, LaunchingRunner, ModelRunner
from engine.runner.ranks.own_sequences import OwnSequences
from engine.runner.warm_up import WarmUpLimits, warm_up, warm_up_experts
from engine.sampling import device_draw
from engine.sampling.logits import SamplingRow
from kernels.dispatch.kernel_sets import triton_set
from kernels.token_mask import TokenMask, num_words
from kernels.triton.mask_logits import mask_logits as triton_mask
from kernels.triton.sample import sample as triton_sample
from tests.engine.model.family_models import random_model, saved_card
from tests.engine.model.layers.test_latent_families import LATENT
from tests.engine.model.rank_decoders import rank_decoder
from tests.engine.model.tiny_llama import ragged_batch
from tests.engine.runner.rerun_graphs import RerunGraphs
from tests.kernels.leading_rank import LeadingRunner, Routes
from tests.kernels.ranks import ThreadRank, run_ranks

MAX_SEQS, MAX_CONTEXT, BLOCK, NUM_BLOCKS = 19, 256, 16, 400
MAX_TOKENS = 512
NUM_STEPS = 80
OWN_COUNTS = (1, 16, MAX_SEQS)
SHAPES = DraftShapes(
    max_num_seqs=MAX_SEQS, max_batch_tokens=MAX_TOKENS, max_context_tokens=MAX_CONTEXT
)
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
    """Random batches: prompts, decodes, both; each sequence has blocks of one home, the next."""

    def __init__(self, seed: int, homes: BlockHomes) -> None:
        self.chance, self.homes = random.Random(seed), homes

    def count(self, index: int, most: int) -> int:
        """Sequences of the step of that index: those first of which Triton's kernels have versions
        of their own, then any number."""
        if index < len(OWN_COUNTS):
            return min(OWN_COUNTS[index], most)
        return self.chance.randint(1, most)

    def batch(self, num_decodes: int, num_prompts: int) -> RaggedBatch:
        chunks = [self._chunk(at, 1) for at in range(num_decodes)]
        lengths = [2, 5, 17, 64, 100]
        chunks += [self._chunk(at, self.chance.choice(lengths)) for at in range(num_prompts)]
        whole = ragged_batch(chunks, block_size=BLOCK)
        wanted = whole.query_starts[1:].long() - 1
        return replace(whole, logit_rows=wanted)

    def drafted(self, num_seqs: int, longest: int) -> RaggedBatch:
        """Each with a draft of up to so many tokens; one of them has one at least."""
        lengths = [self.chance.randint(1, 1 + longest) for _ in range(num_seqs)]
        lengths[-1] = max(2, lengths[-1])
        return ragged_batch(
            [self._chunk(at, length) for at, length in enumerate(lengths)], block_size=BLOCK
        )

    def _chunk(self, at: int, num_tokens: int) -> tuple[list[int], int, list[int]]:
        before = self.chance.randrange(MAX_CONTEXT - num_tokens)
        num_blocks = -(-(before + num_tokens) // BLOCK)
        ids = self.homes.ids_of(at % self.homes.num_homes)
        blocks = [self.chance.choice(ids) for _ in range(num_blocks)]
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


def mask_some(logits: torch.Tensor, steps: Steps) -> None:
    """Rows of answers that follow a grammar."""
    masked = [row for row in range(len(logits)) if steps.chance.random() < 0.5]
    mask = TokenMask(torch.zeros(num_words(logits.shape[1]), dtype=torch.int32))
    triton_mask(logits, masked, [mask] * len(masked))


def steps_of_kinds(runner: ModelRunner, steps: Steps, family: Family) -> None:
    """In which rows have an adapter, or prompts are pooled; and both."""
    for _ in range(NUM_STEPS // 2):
        num_decodes, num_prompts = steps.chance.randint(0, MAX_SEQS), steps.chance.randint(0, 3)
        is_pooled = family.is_pooled and steps.chance.random() < 0.5
        if is_pooled or not num_decodes:
            num_decodes, num_prompts = 0, max(1, num_prompts)
        batch = replace(steps.batch(num_decodes, num_prompts), is_pooled=is_pooled)
        if family.has_adapters:
            some = [steps.chance.randrange(2) for _ in batch.token_ids]
            batch = replace(batch, adapters=torch.tensor(some, dtype=torch.int32))
        runner.forward(batch)


class WaitingRunner:
    """What a group's conductor has: a ModelRunner that launches nothing."""

    def __init__(self, runner: CudaRunner) -> None:
        self.copy_blocks, self.forward = runner.copy_blocks, runner.forward


def serve(runner: ModelRunner, steps: Steps, max_seqs: int, num_steps: int) -> None:
    """Prompts alone, decodes launched, or sampled once they are there, and not, both together."""
    for index in range(num_steps):
        kind, count = index % 4, steps.count(index // 4, max_seqs)
        if kind == 0 and isinstance(runner, LaunchingRunner):
            runner.launch(steps.batch(count, 0), steps.rows(count), [None] * count)
        elif kind == 0:
            logits = runner.forward(steps.batch(count, 0))
            device_draw.draw_on_device(logits, steps.rows(count))
        elif kind == 1:
            mask_some(runner.forward(steps.batch(count, 0)), steps)
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
    num_homes: int = 1
    """Ranks with sequences of their own."""
    has_drafts: bool = False
    """Steps that verify are captured, and taken."""
    has_adapters: bool = False
    is_pooled: bool = False
    """Beside text."""


FAMILIES = {
    "llama": Family("LlamaForCausalLM", {}),
    "llama with drafts": Family("LlamaForCausalLM", {}, has_drafts=True),
    "llama in a group": Family("LlamaForCausalLM", {}, in_group=True),
    "llama with adapters": Family("LlamaForCausalLM", {}, has_drafts=True, has_adapters=True),
    "qwen3 that pools": Family("Qwen3ForCausalLM", {}, is_pooled=True),
    "qwen3 with both": Family("Qwen3ForCausalLM", {}, has_adapters=True, is_pooled=True),
    "qwen3 in int8": Family("Qwen3ForCausalLM", {}, "int8", torch.int8),
    "llama in int4": Family("LlamaForCausalLM", {"intermediate_size": 128}, "int4"),
    "mixtral": Family("MixtralForCausalLM", {"num_local_experts": 4}),
    "mixtral, own sequences": Family("MixtralForCausalLM", {"num_local_experts": 4}, num_homes=2),
    "deepseek v3": Family("DeepseekV3ForCausalLM", {**LATENT, "n_group": 4, "topk_group": 2}),
}


def tell(folder: Path, name: str) -> None:
    """See the head of the file."""
    family = FAMILIES[name]
    noted: list[str] = []
    note_compiles(noted)
    decoder_module.kernels_for = lambda *_: triton_set()
    device_draw.sample = triton_sample
    warm_up_module.mask_logits = triton_mask
    changes = {"vocab_size": VOCAB, "max_position_embeddings": MAX_CONTEXT, **family.changes}
    card = saved_card(random_model(family.architecture, **changes), folder)
    homes = BlockHomes(family.num_homes, NUM_BLOCKS // family.num_homes)
    in_ranks = serve_in_ranks if family.num_homes > 1 else serve_alone
    at_load = in_ranks(card, family, homes, noted)
    print(f"{name}: {at_load}", *noted[at_load:], sep="\n", flush=True)


def limits_of(homes: BlockHomes, scratch_blocks: tuple[int, ...]) -> WarmUpLimits:
    """Of each home."""
    return WarmUpLimits(
        max_num_seqs=MAX_SEQS // homes.num_homes,
        max_batch_tokens=MAX_TOKENS // homes.num_homes,
        max_context_tokens=MAX_CONTEXT,
        block_size=BLOCK,
        scratch_blocks=scratch_blocks,
        compiles=True,
    )


def verify(runner: ModelRunner, steps: Steps, *, has_adapters: bool) -> None:
    """Steps with drafts, whose tokens are all drawn; every other one with adapters, if any."""
    for index in range(NUM_STEPS // 4):
        num_seqs = steps.count(index // 2, MAX_SEQS)
        batch = steps.drafted(num_seqs, SHAPES.max_draft_tokens(num_seqs))
        if has_adapters and index % 2:
            batch = replace(batch, adapters=torch.ones_like(batch.token_ids, dtype=torch.int32))
        logits = runner.forward(batch)
        mask_some(logits, steps)
        device_draw.draw_on_device(logits, steps.rows(len(logits)))


def serve_alone(card: ModelCard, family: Family, homes: BlockHomes, noted: list[str]) -> int:
    """Loads and serves; how many compiles there were in between."""
    pooling = Pooling(kind=PoolingKind.LAST, generates=True) if family.is_pooled else None
    decoder = Decoder.load(
        card,
        torch.float16,
        "cpu",
        weights=WeightFormat(family.weights),
        adapters=AdapterRoom(num_lora_ranks=64, num_slots=9) if family.has_adapters else None,
        pooling=pooling,
    )
    pool = KvPool(KvLayout.of(card.config, BLOCK, family.kv), NUM_BLOCKS + 1, "cpu")
    drafts = SHAPES if family.has_drafts else None
    limits = GraphLimits(max_num_seqs=MAX_SEQS, max_context_tokens=MAX_CONTEXT, drafts=drafts)
    made = CudaRunner(decoder, pool, limits=limits, backend=RerunGraphs(), progress=lambda *_: None)
    runner = WaitingRunner(made) if family.in_group else made
    warmed = limits_of(homes, (NUM_BLOCKS,))
    warmed = replace(warmed, has_adapters=family.has_adapters, is_pooled=family.is_pooled)
    if family.has_drafts:
        warmed = replace(warmed, max_drawn_rows=MOST_ROWS)
    warm_up(runner, warmed, lambda *_: None)
    at_load = len(noted)
    serve(runner, Steps(1, homes), MAX_SEQS, NUM_STEPS)
    if family.has_drafts:
        verify(runner, Steps(2, homes), has_adapters=family.has_adapters)
    steps_of_kinds(runner, Steps(3, homes), family)
    return at_load


def serve_in_ranks(card: ModelCard, family: Family, homes: BlockHomes, noted: list[str]) -> int:
    """As `serve_alone`, by two ranks on threads. What one of them compiles the other has."""
    routes, steps = Routes(), queue.Queue[RaggedBatch | None]()
    decoder_module.kernels_for = lambda *_: replace(triton_set(), route_experts=routes)

    def work(rank: int, collective: ThreadRank) -> int:
        own = _own_sequences(card, homes, rank, collective)
        if rank > 0:
            for batch in iter(steps.get, None):
                own.forward(batch)
            return 0
        runner, scratch = LeadingRunner(own, steps), tuple(homes.ids_of(r).start for r in range(2))
        try:
            warm_up(runner, limits_of(homes, scratch), lambda *_: None)
            at_load, routes.are_random = len(noted), True
            serve(runner, Steps(1, homes), MAX_SEQS // 2 * 2, NUM_STEPS)
        finally:
            steps.put(None)
        return at_load

    return max(run_ranks(homes.num_homes, work))


def _own_sequences(
    card: ModelCard, homes: BlockHomes, rank: int, collective: ThreadRank
) -> OwnSequences:
    """As a rank loads them."""
    decoder = rank_decoder(card, rank, collective, dtype=torch.float16, row_sharing=RowSharing.OWN)
    layout = KvLayout.of_part(decoder.split, BLOCK, decoder.dtype)
    warm_up_experts(decoder, MAX_TOKENS)
    collective.all_gather(torch.zeros(1, 1))  # all have
    return OwnSequences(
        own=DecoderRunner(decoder, KvPool(layout, homes.blocks_each + 1, "cpu")),
        homes=homes,
        block_size=BLOCK,
        experts=decoder.experts,
        collective=collective,
        logits_at=0,
    )


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
