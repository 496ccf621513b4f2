"""Real vLLM servers over NixlConnector: two that compute prompts, and one that reads them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.local_fleet import free_port
from benchmarks.peers.contestant import ROOT, python_of
from benchmarks.peers.process_group import ProcessGroup

NUM_BLOCKS = 40
"""Of 128 tokens: so few that blocks whose lease has passed are soon another prompt's."""
MAX_TOKENS = 1024
START_TIMEOUT_S = 600.0
NICENESS = 10
"""Their workers spin, and router and door are to be heard beside them."""
_PRODUCER, _CONSUMER = "kv_producer", "kv_consumer"
_ENVIRON = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # nobody reads their standard output
}


@dataclass(frozen=True, slots=True)
class VllmServers:
    """Their URLs."""

    prefill: tuple[str, ...]
    decode: str
    lease_s: int
    """`kv_lease_duration` of all of them."""


@contextmanager
def vllm_servers(model: Path, logs: Path, lease_s: int) -> Iterator[VllmServers]:
    """Yields once all are healthy, after a minute or two; stopped at the end. Raises RuntimeError
    with the end of a log where one does not come up."""
    with ExitStack() as stack:
        urls = []
        for number, role in enumerate((_PRODUCER, _PRODUCER, _CONSUMER)):
            port = free_port()
            log = logs / f"vllm-{number}.log"
            env = _ENVIRON | {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
            group = ProcessGroup(
                _command(model, port, _transfer(role, lease_s)), log=log, env=env, cwd=ROOT
            )
            stack.callback(group.stop)
            urls.append((f"http://127.0.0.1:{port}", group))
        deadline_s = time.monotonic() + START_TIMEOUT_S
        for url, group in urls:
            _wait_for(url, group, deadline_s)
        *prefill, decode = (url for url, _ in urls)
        yield VllmServers(tuple(prefill), decode, lease_s)


def is_healthy(url: str) -> bool:
    """By its own word."""
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _wait_for(url: str, group: ProcessGroup, deadline_s: float) -> None:
    while not is_healthy(url):
        if group.process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"a vLLM server did not start: {group.last_words()}")
        time.sleep(0.5)


def _command(model: Path, port: int, transfer: dict[str, object]) -> list[str]:
    """Eager, since compiled this model's text comes out wrong (vLLM 0.32); in float32, since in
    bfloat16 candidates tie, and who else is in the batch decides."""
    python = python_of("vllm")
    assert python is not None, "whoever starts servers has looked whether vLLM is there"
    flags = ["--served-model-name", "smollm2", "--dtype", "float32", "--enforce-eager"]
    flags += ["--max-model-len", str(MAX_TOKENS), "--num-gpu-blocks-override", str(NUM_BLOCKS)]
    flags += ["--host", "127.0.0.1", "--port", str(port), "--enable-prompt-tokens-details"]
    flags += ["--disable-uvicorn-access-log"]  # of a look a second, to a pipe that would fill
    flags += ["--kv-transfer-config", json.dumps(transfer)]
    flags += ["--kv-events-config", json.dumps(_events(free_port(), free_port()))]
    vllm = [str(python.with_name("vllm")), "serve", str(model), *flags]
    return [sys.executable, "-m", "benchmarks.stepped_back", str(NICENESS), *vllm]


def _transfer(role: str, lease_s: int) -> dict[str, object]:
    return {
        "kv_connector": "NixlConnector",
        "kv_role": role,
        "kv_buffer_device": "cpu",
        "kv_connector_extra_config": {"kv_lease_duration": lease_s},
    }


def _events(port: int, replay_port: int) -> dict[str, object]:
    return {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{port}",
        "replay_endpoint": f"tcp://*:{replay_port}",
    }
