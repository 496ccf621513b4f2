"""`cost`: whose the workers' time was, by pool and tenant, and what that is in money."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from cli.inspect.worker_accounts import (
    UNACCOUNTED,
    TenantTime,
    WorkerBill,
    accounts_of,
    totals_by_tenant,
)
from cli.question import ROUTER_TIMEOUT_S
from cli.several_routers import RoutersHeard
from cli.view import Sheet, View
from cluster.dial.dialer import OperatorLink
from protos import fleet_watch_pb2

_POOL_HEADING = (
    *("POOL", "WORKERS", "HOURS", "PREFILL", "DECODE", "IDLE", "TOKENS", "S/1M", "COST", "$/1M"),
    "GONE",
)
_TENANT_HEADING = (
    *("TENANT", "PROMPT TOKENS", "ANSWER TOKENS", "PREFILL S", "DECODE S", "OF BUSY"),
    *("COST", "$/1M", "KV BLOCK S", "REQUESTS"),
)
_NUM_WIDE_POOL, _NUM_WIDE_TENANT = 1, 2
_HOUR_S = 3600.0
Prices = Mapping[str, float]
"""Of an hour of a worker, by pool."""


@dataclass(frozen=True, slots=True)
class RouterWork:
    """What one router knows."""

    told: fleet_watch_pb2.WorkResponse
    num_routers: int
    """Of its fleet, as it believes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCost:
    """Sums over its workers, those that left included."""

    pool: str
    workers: int
    gone: int
    worker_s: float
    prefill_s: float
    decode_s: float
    idle_s: float
    tokens: int
    cost: float | None
    """None: there is no price."""

    def share_of(self, seconds: float) -> float:
        """Of its workers' time."""
        return seconds / self.worker_s if self.worker_s else 0.0


async def work_of(router: OperatorLink) -> RouterWork:
    """Asks twice, side by side."""
    told, members = await asyncio.gather(
        router.work(timeout_s=ROUTER_TIMEOUT_S), router.members(timeout_s=ROUTER_TIMEOUT_S)
    )
    return RouterWork(told, max(1, len(members.routers)))


def cost_view(heard: RoutersHeard[RouterWork], prices: Prices, limit: int) -> View:
    """Of the routers that answered."""
    accounts = accounts_of(said.told for said in heard.answers.values())
    pools = [_pool_cost(pool, accounts, prices) for pool in sorted({a.pool for a in accounts})]
    tenants = totals_by_tenant(accounts)
    costs = {name: _cost_of_tenant(name, accounts, prices) for name in tenants}
    missing = [*missing_of(heard, accounts, tenants), *_unknown_pools(prices, pools)]
    conclusion = conclusion_of(pools)
    data = {
        "routers": list(heard.answers),
        "routers_silent": list(heard.failures),
        "pools": [_pool_fields(each) for each in pools],
        "tenants": [_tenant_fields(name, tenants[name], costs[name]) for name in tenants],
        "idle_s": sum(pool.idle_s for pool in pools),
        "missing": missing,
        "conclusion": conclusion,
    }
    if not accounts:
        return View(data, nothing="no worker has said anything yet")
    busy_s = sum(part.busy_s for part in tenants.values())
    rows = [_tenant_row(name, tenants[name], costs[name], busy_s) for name in tenants]
    more = [f"{len(rows) - limit} more tenants are not shown (--limit)"] * (len(rows) > limit)
    sheets = [
        Sheet(_POOL_HEADING, [_pool_row(each) for each in pools], _NUM_WIDE_POOL),
        Sheet(_TENANT_HEADING, rows[:limit], _NUM_WIDE_TENANT),
        Sheet((), [], title="\n".join([*more, *missing, conclusion])),
    ]
    return View(data, sheets)


def missing_of(
    heard: RoutersHeard[RouterWork],
    accounts: Sequence[WorkerBill],
    tenants: Mapping[str, TenantTime],
) -> list[str]:
    """What is not in the sums, in words."""
    words = [f"missing: requests of the router {name}" for name in heard.failures]
    known = max((said.num_routers for said in heard.answers.values()), default=0)
    num_not_asked = known - len(heard.answers) - len(heard.failures)
    if num_not_asked > 0:
        words.append(
            f"missing: requests of {num_not_asked} routers that were not asked (name all with "
            "--grpc)"
        )
    forgotten = max((said.told.num_forgotten for said in heard.answers.values()), default=0)
    if forgotten:
        words.append(f"missing: {forgotten} workers that left long ago")
    unmeasured = [account.worker_id for account in accounts if not account.is_measured]
    if unmeasured:
        words.append(f"{', '.join(unmeasured)}: no step times are told, all time counts as idle")
    if (rest := tenants.get(UNACCOUNTED)) is not None:
        words.append(
            f"{UNACCOUNTED}: {rest.busy_s:.1f} s for requests that no router here knows: of "
            "routers that ended or were not asked, given up early, or computed again"
        )
    return words


def _unknown_pools(prices: Prices, pools: Sequence[PoolCost]) -> list[str]:
    known = [pool.pool for pool in pools]
    unknown = sorted(prices.keys() - set(known))
    if not unknown:
        return []
    return [f"no pool is called {', '.join(unknown)}, of which a price is said: {', '.join(known)}"]


def conclusion_of(pools: Sequence[PoolCost]) -> str:
    """In a sentence."""
    words = [f"{pool.share_of(pool.idle_s):.0%} of {pool.pool}" for pool in pools]
    idle = f"idle: {', '.join(words)}"
    priced = [pool for pool in pools if pool.cost is not None]
    if not priced:
        return f"{idle} (no prices: --price prefill=2.5,decode=2.5 per worker and hour)"
    total = sum(pool.cost or 0.0 for pool in priced)
    of_idle = sum((pool.cost or 0.0) * pool.share_of(pool.idle_s) for pool in priced)
    without = "".join(f", without {pool.pool}" for pool in pools if pool.cost is None)
    return f"{idle}; {_money(of_idle)} of {_money(total)} were paid for idle time{without}"


def _pool_cost(pool: str, accounts: Sequence[WorkerBill], prices: Prices) -> PoolCost:
    own = [account for account in accounts if account.pool == pool]
    parts = [part for account in own for part in account.parts.values()]
    worker_s = sum(account.known_s for account in own)
    return PoolCost(
        pool=pool,
        workers=len(own),
        gone=sum(account.is_gone for account in own),
        worker_s=worker_s,
        prefill_s=sum(part.prefill_s for part in parts),
        decode_s=sum(part.decode_s for part in parts),
        idle_s=sum(account.idle_s for account in own),
        tokens=sum(part.tokens for part in parts),
        cost=worker_s / _HOUR_S * prices[pool] if pool in prices else None,
    )


def _cost_of_tenant(tenant: str, accounts: Sequence[WorkerBill], prices: Prices) -> float | None:
    """Of the seconds that workers computed for it. None without prices."""
    if not prices:
        return None
    return sum(
        account.parts[tenant].busy_s / _HOUR_S * prices.get(account.pool, 0.0)
        for account in accounts
        if tenant in account.parts
    )


def _pool_fields(pool: PoolCost) -> dict[str, object]:
    return asdict(pool) | {
        "idle_share": pool.share_of(pool.idle_s),
        "worker_s_per_million_tokens": _per_million(pool.worker_s, pool.tokens),
        "cost_per_million_tokens": _per_million(pool.cost, pool.tokens),
    }


def _tenant_fields(name: str, part: TenantTime, cost: float | None) -> dict[str, object]:
    return (
        {"tenant": name}
        | asdict(part)
        | {
            "busy_s": part.busy_s,
            "busy_s_per_million_tokens": _per_million(part.busy_s, part.tokens),
            "cost": cost,
            "cost_per_million_tokens": _per_million(cost, part.tokens),
        }
    )


def _pool_row(pool: PoolCost) -> tuple[str, ...]:
    per_million = _per_million(pool.worker_s, pool.tokens)
    return (
        *(pool.pool, str(pool.workers), f"{pool.worker_s / _HOUR_S:.2f}"),
        *(f"{pool.share_of(part):.0%}" for part in (pool.prefill_s, pool.decode_s, pool.idle_s)),
        *(str(pool.tokens), "-" if per_million is None else f"{per_million:.0f}"),
        *(_money(pool.cost), _money(_per_million(pool.cost, pool.tokens)), str(pool.gone)),
    )


def _tenant_row(name: str, part: TenantTime, cost: float | None, busy_s: float) -> tuple[str, ...]:
    return (
        *(name, str(part.prefill_tokens), str(part.decode_tokens)),
        *(f"{part.prefill_s:.1f}", f"{part.decode_s:.1f}"),
        f"{part.busy_s / busy_s:.0%}" if busy_s else "-",
        *(_money(cost), _money(_per_million(cost, part.tokens))),
        *(f"{part.kv_block_s:.0f}", str(part.requests)),
    )


def _per_million(amount: float | None, tokens: int) -> float | None:
    return None if amount is None or not tokens else amount / tokens * 1e6


def _money(amount: float | None) -> str:
    """Cents, and more digits of what is less than one."""
    if amount is None:
        return "-"
    return f"{amount:.2f}" if amount >= 1 or not amount else f"{amount:.3g}"
