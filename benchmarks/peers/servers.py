"""Two servers on the same cores, one frozen while the other is driven over HTTP."""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.comparison import OURS, Comparison
from benchmarks.local_fleet import free_port
from benchmarks.peers.contestant import ROOT, python_of
from benchmarks.peers.models import safetensors_folder
from benchmarks.peers.process_group import ProcessGroup
from benchmarks.stream_client import complete, complete_all

CLIENTS, CONTEXT, NEW_TOKENS = 16, 256, 128
PREFIX, REST, TOGETHER = 2000, 80, 4
START_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running server and its HTTP port."""

    name: str
    port: int
    group: ProcessGroup


def http_comparisons(rounds: int, threads: int) -> list[Comparison]:
    """Tokens per second of sixteen clients; time to the first token behind a shared prefix."""
    throughput = Comparison(
        "16 clients over HTTP, 256 in, 128 out", "tokens/s", None, 1.5, higher_is_better=True
    )
    prefix = Comparison(
        "TTFT over HTTP, 2000 tokens shared and 80 own, 4 at once (median)", "ms", None, 2.0
    )
    memory = Comparison("peak memory of all processes, serving", "MiB")
    folder = safetensors_folder()
    if folder is None:
        return []
    with tempfile.TemporaryDirectory() as logs, ExitStack() as stack:
        servers = [_start(OURS, own_command(threads), Path(logs), threads, stack)]
        servers.append(_start("vllm", vllm_command(folder), Path(logs), threads, stack))
        rng = random.Random()
        for number in range(rounds + 1):
            for server in servers if number % 2 else servers[::-1]:
                server.group.thaw()
                rate = asyncio.run(tokens_per_s(server.port, rng))
                ttft = asyncio.run(shared_prefix_ttft_ms(server.port, rng))
                server.group.freeze()
                if number:
                    throughput.add(server.name, rate)
                    prefix.add(server.name, ttft)
            print(f"HTTP round {number} of {rounds}", flush=True)
        for server in servers:
            memory.add(server.name, server.group.peak_bytes() / 2**20)
    return [throughput, prefix, memory]


async def tokens_per_s(port: int, rng: random.Random) -> float:
    """All clients at once, from the first request to the last token."""
    prompts = [fresh(rng, CONTEXT) for _ in range(CLIENTS)]
    started = time.monotonic()
    await complete_all(port, prompts, NEW_TOKENS)
    return CLIENTS * NEW_TOKENS / (time.monotonic() - started)


async def shared_prefix_ttft_ms(port: int, rng: random.Random) -> float:
    """One request brings the prefix into the cache; the median of those that follow it."""
    prefix = fresh(rng, PREFIX)
    await complete(port, prefix, 2)
    prompts = [prefix + fresh(rng, REST) for _ in range(TOGETHER)]
    return statistics.median(s.ttft_ms for s in await complete_all(port, prompts, 2))


def fresh(rng: random.Random, num_tokens: int) -> list[int]:
    """Ordinary tokens that nobody has seen."""
    return [rng.randrange(1000, 40_000) for _ in range(num_tokens)]


def own_command(threads: int) -> list[str]:
    """A colocated fleet: router and one decode worker on the same cores as the peer has."""
    flags = ["--prefill", "0", "--decode", "1", "--num-threads", str(threads)]
    return [sys.executable, "-m", "cli", "serve", *flags, "--port", "{port}", "--grpc-port", "0"]


def vllm_command(folder: Path) -> list[str]:
    """Eager, since compiled this model's text comes out wrong; prefix caching is its default."""
    program = python_of("vllm")
    assert program is not None
    flags = ["--served-model-name", "smollm2", "--dtype", "bfloat16", "--enforce-eager"]
    flags += ["--max-model-len", "8192", "--host", "127.0.0.1", "--port", "{port}"]
    return [str(program.with_name("vllm")), "serve", str(folder), *flags]


def _start(name: str, command: Sequence[str], logs: Path, threads: int, stack: ExitStack) -> Server:
    port = free_port()
    env = {
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    words = [word.replace("{port}", str(port)) for word in command]
    group = ProcessGroup(words, log=logs / f"{name}.log", env=env, cwd=ROOT)
    stack.callback(group.stop)
    deadline = time.monotonic() + START_TIMEOUT_S
    while not _is_healthy(port):
        if group.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{name} did not start: {group.last_words()}")
        time.sleep(0.5)
    group.freeze()
    return Server(name, port, group)


def _is_healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
