"""Stock vLLM behind the router, beside vLLM's own order of calls: wrong answers, and cache hits.

    benchmarks/peers/install.sh vllm             its environment, once
    python -m benchmarks.bench_vllm [--late 100] [--groups 6] [--each 4]

Two prefill servers and a decode server over NixlConnector, with few blocks. First, prompts behind
shared prefixes: how much of them no server had to compute. Then, with a lease of 6 s, prompts whose
blocks are read after it, since requests stand in line at the decode server's door, while others use
the prefill servers' blocks: how many answers differ from a single server's, and how many name what
is another prompt's. Both are asked by the router, and in the order of vLLM's example proxy, each
prefill server in turn. The folder of `--logs` gets each answer, with the text expected,
whether it was late, and the router's log on it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.models import safetensors_folder
from benchmarks.report import Row, exit_code, print_table, write_json
from benchmarks.vllm_pair.asking import new_client
from benchmarks.vllm_pair.comparison import Compared, Contest
from benchmarks.vllm_pair.late_door import LateDoor
from benchmarks.vllm_pair.router import router_before
from benchmarks.vllm_pair.servers import VllmServers, vllm_servers

LATE_LEASE_S = 6
"""So short that much is read after it."""
HITS_LEASE_S = 30
"""vLLM's default: what is found is not to depend on how late a small machine is."""
RESULTS = Path(__file__).parent / "results" / "vllm.json"


@contextmanager
def servers_of(options: argparse.Namespace, lease_s: int, logs: Path) -> Iterator[VllmServers]:
    """Those that run already, or new ones. Raises RuntimeError where vLLM is not installed."""
    if options.servers:
        *prefill, decode = options.servers
        yield VllmServers(tuple(prefill), decode, LATE_LEASE_S)
        return
    folder = safetensors_folder()
    if folder is None:
        raise RuntimeError("vLLM is not installed: benchmarks/peers/install.sh vllm")
    with vllm_servers(folder, logs, lease_s) as servers:
        yield servers


@asynccontextmanager
async def contest_at(servers: VllmServers, logs: Path) -> AsyncIterator[Contest]:
    """Two ways to ask servers that run."""
    async with new_client() as http, LateDoor(servers.decode).open() as door:
        behind_door = replace(servers, decode=door.url)
        async with router_before(behind_door, logs) as router:
            yield Contest(http, servers, door, router, logs)


async def prefix_hits(servers: VllmServers, logs: Path, options: argparse.Namespace) -> Compared:
    """Of shared prefixes."""
    async with contest_at(servers, logs) as contest:
        return await contest.hits(options.groups, options.each)


async def late_reads(servers: VllmServers, logs: Path, options: argparse.Namespace) -> Compared:
    """Reads after their lease."""
    async with contest_at(servers, logs) as contest:
        return await contest.late(options.late, options.late_s)


def measured(options: argparse.Namespace, folder: Path) -> Iterator[Compared]:
    """Those that are asked for, each at servers of its own."""
    asked = ((prefix_hits, HITS_LEASE_S, options.groups), (late_reads, LATE_LEASE_S, options.late))
    for measure, lease_s, amount in asked:
        logs = folder / measure.__name__
        logs.mkdir(parents=True, exist_ok=True)
        if not amount:
            yield Compared()
            continue
        with servers_of(options, lease_s, logs) as servers:
            yield asyncio.run(measure(servers, logs, options))


def options_in(arguments: Sequence[str] | None) -> argparse.Namespace:
    """As described above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--late", type=int, default=100, help="answers of the router that are late")
    parser.add_argument("--late-s", type=float, default=240.0, help="the longest it waits for them")
    parser.add_argument(
        "--groups", type=int, default=6, help="of prompts with one prefix; 0: no such load"
    )
    parser.add_argument("--each", type=int, default=4, help="prompts of a group")
    parser.add_argument(
        "--servers", nargs="*", help="URLs of prefill servers and, last, of a decode server"
    )
    parser.add_argument("--logs", type=Path, help="where processes write theirs")
    parser.add_argument("--json", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when a goal is missed."""
    options = options_in(arguments)
    with tempfile.TemporaryDirectory() as folder:
        hits, late = measured(options, options.logs or Path(folder))
    rows: list[Row] = [*late.rows, *hits.rows]
    print_table("stock vLLM behind the router", rows)
    write_json(options.json, "vllm", rows, {"late_reads": late.details, "hits": hits.details})
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
