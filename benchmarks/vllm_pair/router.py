"""One router of ours before vLLM servers, as a process."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.local_fleet import free_port
from benchmarks.peers.contestant import ROOT
from benchmarks.peers.process_group import ProcessGroup
from benchmarks.vllm_pair.counters import total
from benchmarks.vllm_pair.servers import START_TIMEOUT_S, VllmServers, is_healthy


@asynccontextmanager
async def router_before(servers: VllmServers, logs: Path) -> AsyncIterator[str]:
    """Its URL, once all of them have joined. Raises RuntimeError where that does not come about."""
    port = free_port()
    group = ProcessGroup(_command(servers, port), log=logs / "router.log", env={}, cwd=ROOT)
    url, deadline_s = f"http://127.0.0.1:{port}", time.monotonic() + START_TIMEOUT_S
    num_servers = len(servers.prefill) + 1
    try:
        while not await asyncio.to_thread(_has_joined, url, num_servers):
            if group.process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the router did not start: {group.last_words()}")
            await asyncio.sleep(0.5)
        yield url
    finally:
        await asyncio.to_thread(group.stop)


def _has_joined(url: str, num_servers: int) -> bool:
    return is_healthy(url) and total([url], "splitserve_members") >= num_servers


def _command(servers: VllmServers, port: int) -> list[str]:
    named = [f"{url},role=prefill,lease={servers.lease_s}" for url in servers.prefill]
    named.append(f"{servers.decode},role=decode,lease={servers.lease_s}")
    command = [sys.executable, "-m", "cli", "router", "--model", "smollm2", "--port", str(port)]
    command += ["--grpc-port", "0"]
    return [*command, "--vllm", ",".join(named)]
