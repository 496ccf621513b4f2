"""`get pools` and `describe pool`: what the workers of one pool are together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from cli.inspect.members import Seen, members_of
from cli.inspect.workers import worker_fields
from cli.question import NotFound
from cli.view import Sheet, View
from cluster.dial.dialer import OperatorLink
from cluster.scaling.pool_members import pool_name
from protos import membership_pb2

_HEADING = (
    *("POOL", "READY", "SPARE", "RUNNING", "WAITING", "KV USED", "KV CACHED", "RESTARTS"),
    *("WAITING TOKENS", "PREFILL TOK/S", "STEP MS", "LINK MB/S", "PREEMPTIONS"),
)
_NUM_WIDE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Sums over its members, as of their last beats; rates of all together."""

    pool: str
    role: str
    members: int
    ready: int
    spares: int
    restarts: int
    """Processes of it that were started again since their supervisor began."""
    running: int
    waiting: int
    total_blocks: int
    used_blocks: int
    cached_blocks: int
    waiting_prefill_tokens: int
    prefill_tokens_per_s: float
    decode_step_ms: float
    """Of the slowest member."""
    link_bytes_per_s: float
    """Moving average of how fast its transfers are while they last, not of what comes."""
    preemptions: int

    @property
    def used_share(self) -> float:
        """Of its KV blocks."""
        return self.used_blocks / self.total_blocks if self.total_blocks else 0.0

    @property
    def cached_share(self) -> float:
        """Of its KV blocks."""
        return self.cached_blocks / self.total_blocks if self.total_blocks else 0.0


async def pools_view(router: OperatorLink) -> View:
    """A row for each pool that has members, spares or restarts."""
    pools = pools_of(await members_of(router))
    return View([asdict(pool) for pool in pools], [pool_sheet(pools)], "no workers have joined")


async def pool_view(router: OperatorLink, name: str) -> View:
    """One pool and its members. Raises NotFound."""
    answer = await members_of(router)
    pools = {pool.pool: pool for pool in pools_of(answer)}
    if name not in pools:
        raise NotFound(f"no pool {name!r}; there are: {', '.join(pools) or 'none'}")
    members = [seen for seen in answer.members if pool_name(seen.member) == name]
    rows = [(seen.member.worker_id, seen.state, seen.member.address) for seen in members]
    return View(
        asdict(pools[name]) | {"workers": [worker_fields(seen) for seen in members]},
        [pool_sheet([pools[name]]), Sheet(("WORKER", "STATE", "ADDRESS"), rows)],
    )


def pools_of(answer: membership_pb2.MembersResponse) -> list[Pool]:
    """By name."""
    names = {pool_name(seen.member) for seen in answer.members}
    names |= {spare.role for spare in answer.spares} | {each.pool for each in answer.restarts}
    return [_pool(name, answer) for name in sorted(names)]


def pool_sheet(pools: list[Pool]) -> Sheet:
    """A row for each."""
    return Sheet(_HEADING, [_row(pool) for pool in pools], _NUM_WIDE)


def _pool(name: str, answer: membership_pb2.MembersResponse) -> Pool:
    members = [seen for seen in answer.members if pool_name(seen.member) == name]
    return Pool(
        pool=name,
        role=next((seen.member.role for seen in members), name),
        members=len(members),
        ready=sum(seen.state == "ready" for seen in members),
        spares=sum(spare.role == name for spare in answer.spares),
        restarts=sum(each.count for each in answer.restarts if each.pool == name),
        running=int(_sum(members, "num_running")),
        waiting=int(_sum(members, "num_waiting")),
        total_blocks=int(_sum(members, "total_blocks")),
        used_blocks=int(
            _sum(members, "total_blocks")
            - _sum(members, "free_blocks")
            - _sum(members, "cached_blocks")
        ),
        cached_blocks=int(_sum(members, "cached_blocks")),
        waiting_prefill_tokens=int(_sum(members, "waiting_prefill_tokens")),
        prefill_tokens_per_s=_sum(members, "prefill_tokens_per_s"),
        decode_step_ms=max((seen.load.decode_step_ms for seen in members), default=0.0),
        link_bytes_per_s=_sum(members, "kv_bytes_per_s"),
        preemptions=int(_sum(members, "num_preemptions")),
    )


def _sum(members: Iterable[Seen], field: str) -> float:
    return float(sum(getattr(seen.load, field) for seen in members))


def _row(pool: Pool) -> tuple[str, ...]:
    return (
        *(pool.pool, f"{pool.ready}/{pool.members}", str(pool.spares)),
        *(str(pool.running), str(pool.waiting), f"{pool.used_share:.0%}"),
        *(f"{pool.cached_share:.0%}", str(pool.restarts), str(pool.waiting_prefill_tokens)),
        *(f"{pool.prefill_tokens_per_s:.0f}", f"{pool.decode_step_ms:.1f}"),
        *(f"{pool.link_bytes_per_s / 1e6:.1f}", str(pool.preemptions)),
    )
