"""Options of an engine: one model replica, on its device or over its ranks."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.option_field import option
from cluster.speculation import SpeculationWish, wish_of


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """One model replica."""

    device: str = option("auto", "auto, cpu or cuda", choices=("auto", "cpu", "cuda"))
    tensor_parallel_size: int = option(
        1,
        "ranks: processes, or GPUs, that share the matrices and heads of a replica",
        low=1,
        high=64,
    )
    expert_parallel_size: int | None = option(
        None,
        "groups of ranks that a mixture's routed experts are dealt out to, a divisor of the ranks; "
        "default: as many as there are experts for",
        low=1,
    )
    expert_exchange: str = option(
        "auto",
        "how rows reach other ranks' experts: gather (all ranks have all rows), all-to-all (each "
        "has a part, and sends them), or auto, which is gather, or all-to-all with "
        "--data-parallel-attention",
        choices=("auto", "gather", "all-to-all"),
    )
    data_parallel_attention: bool = option(
        False,
        "ranks share a mixture's routed experts alone: each has all else, and the KV of sequences "
        "of its own",
    )
    expert_rebalance_interval_s: float | None = option(
        None,
        "seconds after which the experts of one more layer may change their ranks, by measured "
        "load; default: never",
        low=0.1,
    )
    block_size_tokens: int = option(16, "tokens in a KV block", low=1, high=1024)
    max_num_seqs: int = option(64, "sequences that decode at once, at most", low=1)
    max_batch_tokens: int = option(
        512, "tokens in one step, at most: decodes first, then prefill chunks", low=1
    )
    max_step_ms: float | None = option(
        None,
        "longest step in which a prompt may be computed beside sequences that decode; "
        "default: 3 of the slower decode steps, as measured, and at least 16 tokens",
        low=0.1,
    )
    max_context_tokens: int | None = option(
        None, "prompt and completion together; default: the model's", low=2
    )
    kv_memory_bytes: int | None = option(
        None, "KV pool of each rank, such as 512MiB; default: from the memory that is free", low=1
    )
    memory_share: float = option(
        1.0,
        "part of the device's memory to plan with, and never more than is free, (0, 1]",
        low=0.001,
        high=1.0,
    )
    num_threads: int | None = option(
        None,
        "CPU threads of this engine, divided among its ranks on a host; default: all cores",
        low=1,
    )
    niceness: int = option(
        0, "how far the engine steps back for other processes on busy cores", low=0, high=19
    )
    speculation: str = option(
        "auto",
        "guesses of coming tokens, verified several in a step: ngram (what followed the last "
        "tokens before, in prompt, answer or prediction), auto (the same where no text can change "
        "by it, as on CPUs with native kernels, never on GPUs, and heads where the model has them "
        "and one rank has room), off; heads (layers of the model's own checkpoint that predict "
        "further tokens), a smaller model with the same tokenizer, as --model takes one, or an "
        "EAGLE-3 checkpoint of this model, which guess beside ngram",
    )
    adapters: str | None = option(
        None,
        "folder of LoRA adapters, one in each folder below it, which is watched: clients ask for "
        "one as a model of its name; default: none are loaded",
    )
    adapter_ranks: int = option(
        256,
        "ranks of adapters that are in the device's memory at once, all adapters together; others "
        "of the folder are read when they are asked for, and those least lately used give way",
        low=1,
        high=8192,
    )
    prefix_cache: bool = option(True, "keep the blocks of finished requests for reuse")
    cuda_graphs: bool = option(
        True, "on a GPU, record decode steps at load and replay them; off: kernel by kernel"
    )
    rank_launcher: str = option(
        "processes",
        "what starts the ranks of an engine: processes of its host, or ray, actors on a cluster",
        choices=("processes", "ray"),
    )
    ray_address: str | None = option(
        None,
        "host:port of a Ray cluster's head, for --launcher and --rank-launcher ray; default: "
        "$RAY_ADDRESS, else a Ray that is started for the occasion",
    )
    ray_listen: str | None = option(
        None,
        "host:port at which hosts join a Ray that is started for --rank-launcher ray; default: "
        "none may",
    )
    ray_hosts: int = option(
        1, "hosts that have equal parts of the ranks on such a Ray", low=1, high=64
    )
    ray_wait_s: float = option(
        0.0,
        "how long an engine waits for hosts to join a Ray cluster that is too small for its ranks",
        low=0,
    )
    engine_silence_s: float = option(
        2.0, "an engine that neither speaks nor works so long is ended", low=0.1
    )
    step_timeout_s: float = option(
        120.0, "an engine that does not end a step in this time is ended", low=0.1
    )
    start_timeout_s: float = option(
        300.0, "a process that makes no progress so long while it starts is ended", low=1
    )

    @property
    def speculation_wish(self) -> SpeculationWish:
        """What `speculation` asks for. Raises ConfigError for what there is no drafter for."""
        return wish_of(self.speculation)

    @property
    def num_homes(self) -> int:
        """Ranks that each have sequences of their own: see cluster/block_homes.py."""
        return self.tensor_parallel_size if self.data_parallel_attention else 1

    @property
    def num_seats(self) -> int:
        """Sequences that decode at once: as many at each home, and no more than the option says."""
        return self.max_num_seqs // self.num_homes * self.num_homes
