"""Stock vLLM behind the router, beside vLLM's own order of calls: wrong answers, and cache hits.

    benchmarks/peers/install.sh vllm             its environment, once
    python -m benchmarks.bench_vllm [--late 100] [--groups 6] [--each 4]

Two prefill servers and a decode server over NixlConnector, with a lease of 6 s and few blocks.
First, prompts whose blocks are read after their lease, since requests stand in line at the decode
server's door, while others use the prefill servers' blocks: how many answers differ from a single
server's, and how many name what is another prompt's. Then prompts behind shared prefixes: how much
of them no server had to compute. Both are asked by the router, and in the order of vLLM's example
proxy, each prefill server in turn. The folder of `--logs` gets each answer, with the text expected,
whether it was late, and the router's log on it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.models import safetensors_folder
from benchmarks.report import Row, exit_code, print_table, write_json
from benchmarks.vllm_pair.asking import new_client
from benchmarks.vllm_pair.comparison import Compared, Contest
from benchmarks.vllm_pair.late_door import LateDoor
from benchmarks.vllm_pair.router import router_before
from benchmarks.vllm_pair.servers import VllmServers, vllm_servers

RESULTS = Path(__file__).parent / "results" / "vllm.json"


@contextmanager
def servers_of(options: argparse.Namespace, logs: Path) -> Iterator[VllmServers]:
    """Those that run already, or new ones. Raises RuntimeError where vLLM is not installed."""
    if options.servers:
        *prefill, decode = options.servers
        yield VllmServers(tuple(prefill), decode)
        return
    folder = safetensors_folder()
    if folder is None:
        raise RuntimeError("vLLM is not installed: benchmarks/peers/install.sh vllm")
    with vllm_servers(folder, logs) as servers:
        yield servers


async def measured(servers: VllmServers, logs: Path, options: argparse.Namespace) -> list[Compared]:
    """Late reads, then shared prefixes, at servers that run."""
    async with new_client() as http, LateDoor(servers.decode).open() as door:
        behind_door = VllmServers(servers.prefill, door.url)
        async with router_before(behind_door, logs) as router:
            contest = Contest(http, servers, door, router, logs)
            late = await contest.late(options.late, options.late_s)
            if not options.groups:
                return [late, Compared()]
            return [late, await contest.hits(options.groups, options.each)]


def options_in(arguments: Sequence[str] | None) -> argparse.Namespace:
    """As described above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--late", type=int, default=100, help="answers of the router that are late")
    parser.add_argument("--late-s", type=float, default=240.0, help="the longest it waits for them")
    parser.add_argument("--groups", type=int, default=6, help="of prompts with one prefix; 0: none")
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
        logs = options.logs or Path(folder)
        with servers_of(options, logs) as servers:
            late, hits = asyncio.run(measured(servers, logs, options))
    rows: list[Row] = [*late.rows, *hits.rows]
    print_table("stock vLLM behind the router", rows)
    write_json(options.json, "vllm", rows, {"late_reads": late.details, "hits": hits.details})
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
