"""`top`: a fleet on one screen: its last ten seconds, as one router counts them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from cli.inspect.pools import Pool, pools_of
from cli.question import ROUTER_TIMEOUT_S
from cli.view import Sheet, View
from cluster.dial.dialer import OperatorLink
from protos import fleet_watch_pb2, membership_pb2

_POOL_HEADING = (
    *("POOL", "READY", "RUN", "WAIT", "KV USED", "CACHED", "STEP MS", "PREFILL TOK/S"),
    *("LINK MB/S", "RESTARTS"),
)
_CLASS_HEADING = ("CLASS", "QUEUED")
_STAGE_HEADING = ("LATENCY", "P50 MS", "P95 MS", "COUNT")
LINE_HEADING = (
    *("TIME", "QUEUED", "FLYING", "TTFT P50", "TTFT P95", "ITL P50", "ITL P95"),
    *("HIT", "TOK/S", "KV MB/S", "KV USED"),
)
"""Of one look a line; times in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLook:
    """What a router says of its members, and of its last seconds, asked at the same moment."""

    uptime_s: float
    num_queued: int
    num_in_flight: int
    lately: fleet_watch_pb2.LatelyResponse
    pools: list[Pool]

    @property
    def hit_share(self) -> float:
        """Of prompt tokens of requests that ended, those that were not computed again."""
        lately = self.lately
        return lately.cached_tokens / lately.prompt_tokens if lately.prompt_tokens else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Of answers that ended."""
        return self.per_s(self.lately.completion_tokens)

    @property
    def kv_bytes_per_s(self) -> float:
        """From prefill to decode workers."""
        return self.per_s(self.lately.kv_bytes)

    @property
    def used_share(self) -> float:
        """Of all KV blocks of decode workers, or of all workers where none decodes."""
        pools = [pool for pool in self.pools if pool.role == "decode"] or self.pools
        total = sum(pool.total_blocks for pool in pools)
        return sum(pool.used_blocks for pool in pools) / total if total else 0.0

    def per_s(self, number: float) -> float:
        """`number`: of the window."""
        return number / self.lately.window_s if self.lately.window_s else 0.0

    def times_of(self, stage: str) -> fleet_watch_pb2.StageTimes:
        """Zeros where there are none."""
        return next((each for each in self.lately.stages if each.stage == stage), _NOTHING)


_NOTHING = fleet_watch_pb2.StageTimes()


async def look_at(router: OperatorLink) -> FleetLook:
    """Asks for members and for the last seconds at once. Raises SplitserveError."""
    members, lately = await asyncio.gather(
        router.members(timeout_s=ROUTER_TIMEOUT_S), router.lately(timeout_s=ROUTER_TIMEOUT_S)
    )
    return look_of(members, lately)


def look_of(
    members: membership_pb2.MembersResponse, lately: fleet_watch_pb2.LatelyResponse
) -> FleetLook:
    """The same of two answers that are there."""
    return FleetLook(
        uptime_s=members.uptime_s,
        num_queued=members.num_queued,
        num_in_flight=lately.num_in_flight,
        lately=lately,
        pools=pools_of(members),
    )


async def top_view(router: OperatorLink) -> View:
    """`top --once`: a look that is printed, as tables or as data."""
    look = await look_at(router)
    return View(fields_of_look(look), sheets_of(look))


def fields_of_look(look: FleetLook) -> dict[str, object]:
    """Every number of a look by its name, with its unit: what -o json and yaml print."""
    lately = look.lately
    return {
        "window_s": lately.window_s,
        "uptime_s": look.uptime_s,
        "num_queued": look.num_queued,
        "num_in_flight": look.num_in_flight,
        "num_finished": lately.num_finished,
        "num_refused": lately.num_refused,
        "hit_share": look.hit_share,
        "tokens_per_s": look.tokens_per_s,
        "kv_bytes_per_s": look.kv_bytes_per_s,
        "kv_used_share": look.used_share,
        "queued_by_class": {each.priority: each.num_queued for each in lately.classes},
        "latency": {
            each.stage: {"count": each.count, "p50_ms": each.p50_ms, "p95_ms": each.p95_ms}
            for each in lately.stages
        },
        "pools": [asdict(pool) for pool in look.pools],
    }


def sheets_of(look: FleetLook) -> list[Sheet]:
    """Pools under the headline, then latency by stage, then queues by class."""
    lately = look.lately
    stages = [_stage_row(each) for each in lately.stages]
    classes = [(each.priority, str(each.num_queued)) for each in lately.classes]
    return [
        Sheet(_POOL_HEADING, [_pool_row(pool) for pool in look.pools], title=headline(look)),
        Sheet(_STAGE_HEADING, stages),
        Sheet(_CLASS_HEADING, classes),
    ]


def headline(look: FleetLook) -> str:
    """What is most asked for, in two lines."""
    lately = look.lately
    return (
        f"queued {look.num_queued}  in flight {look.num_in_flight}  "
        f"KV used {look.used_share:.0%}  up {look.uptime_s:.0f} s\n"
        f"last {lately.window_s:.0f} s: {lately.num_finished} finished, "
        f"{lately.num_refused} refused, hit {_hit(look)}, "
        f"{look.tokens_per_s:.0f} tok/s, KV {look.kv_bytes_per_s / 1e6:.1f} MB/s"
    )


def line_of(look: FleetLook, now: datetime) -> tuple[str, ...]:
    """A row under LINE_HEADING; "-" where nothing was counted that it could be of."""
    ttft, itl = look.times_of("ttft"), look.times_of("itl")
    times = ((t.count, ms) for t in (ttft, itl) for ms in (t.p50_ms, t.p95_ms))
    return (
        *(now.strftime("%H:%M:%S"), str(look.num_queued), str(look.num_in_flight)),
        *(f"{ms:.1f}" if count else "-" for count, ms in times),
        *(_hit(look), f"{look.tokens_per_s:.0f}"),
        *(f"{look.kv_bytes_per_s / 1e6:.1f}", f"{look.used_share:.0%}"),
    )


def _hit(look: FleetLook) -> str:
    return f"{look.hit_share:.0%}" if look.lately.prompt_tokens else "-"


def fitted(sheets: Sequence[Sheet], width: int) -> str:
    """Their tables with as many columns as go into so many cells; what is still wider is cut."""
    return "\n\n".join(_fitted(sheet, width) for sheet in sheets)


def _fitted(sheet: Sheet, width: int) -> str:
    for num_columns in range(len(sheet.heading), 0, -1):
        rows = [row[:num_columns] for row in sheet.rows]
        text = Sheet(sheet.heading[:num_columns], rows, title=sheet.title).text(wide=True)
        table = text.removeprefix(sheet.title)
        if num_columns == 1 or max(map(len, table.splitlines()), default=0) <= width:
            break
    return "\n".join(line[:width] for line in text.splitlines())


def _pool_row(pool: Pool) -> tuple[str, ...]:
    return (
        *(pool.pool, f"{pool.ready}/{pool.members}", str(pool.running), str(pool.waiting)),
        *(f"{pool.used_share:.0%}", f"{pool.cached_share:.0%}", f"{pool.decode_step_ms:.1f}"),
        *(f"{pool.prefill_tokens_per_s:.0f}", f"{pool.link_bytes_per_s / 1e6:.1f}"),
        str(pool.restarts),
    )


def _stage_row(times: fleet_watch_pb2.StageTimes) -> tuple[str, ...]:
    if not times.count:
        return times.stage, "-", "-", "0"
    return times.stage, f"{times.p50_ms:.1f}", f"{times.p95_ms:.1f}", str(times.count)
