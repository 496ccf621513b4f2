"""`slow`: where latency comes from, of all requests that the routers of a fleet still know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from cli.inspect.slices import LEAST_IN_SLICE, LEAST_REQUESTS, Slice, Slicing, quantile
from cli.inspect.timed_requests import IN_WORDS, By, TimedRequest, TtftStage, timed
from cli.question import ROUTER_TIMEOUT_S
from cli.several_routers import RoutersHeard
from cli.view import Sheet, View
from cluster.dial.dialer import OperatorLink
from cluster.scaling.pool_members import pool_name
from protos import router_admin_pb2

_HEADING = (
    *("BY", "SLICE", "COUNT", "FAILED", "TTFT P50", "P95", "P99", "ITL P95"),
    *("OF ALL", "OF TAIL", "EXPLAINS", "MOSTLY"),
    *(stage.value.upper() for stage in TtftStage),
)
_NUM_WIDE = len(TtftStage)
_TRACE_TIMEOUT_S = 2 * ROUTER_TIMEOUT_S
"""A thousand requests are told in one answer."""


@dataclass(frozen=True, slots=True)
class Recent:
    """What one router knows."""

    requests: list[TimedRequest]
    """Those that are over."""
    num_routers: int
    """Of its fleet, as it believes."""


async def recent_of(router: OperatorLink, since_s: float) -> Recent:
    """Of the last so many seconds; 0: of all that it keeps."""
    members = await router.members(timeout_s=ROUTER_TIMEOUT_S)
    models = {seen.member.worker_id: seen.member.model for seen in members.members}
    pools = {seen.member.worker_id: pool_name(seen.member) for seen in members.members}
    asked = router_admin_pb2.TraceRequest(since_s=since_s)
    told = await router.trace(asked, timeout_s=_TRACE_TIMEOUT_S)
    found = [each for trace in told.traces if (each := timed(trace, models, pools)) is not None]
    return Recent(found, max(1, len(members.routers)))


def slow_view(heard: RoutersHeard[Recent], kinds: Sequence[By], limit: int) -> View:
    """Of the routers that answered."""
    slicing = Slicing(request for said in heard.answers.values() for request in said.requests)
    slices = slicing.slices(kinds)
    conclusion = conclusion_of(slicing, slices)
    data = {
        "routers": list(heard.answers),
        "routers_silent": list(heard.failures),
        "routers_not_asked": _num_not_asked(heard),
        **asdict(slicing.tail),
        "over_percent": slicing.tail.over_percent,
        "slices": [_fields(each) for each in slices],
        "conclusion": conclusion,
    }
    rows = [_row(each) for each in slices[:limit]]
    left = len(slices) - len(rows)
    more = f"\n{left} more slices are not shown (--limit)" if left else ""
    sheets = [Sheet(_HEADING, rows, _NUM_WIDE, _title(slicing, heard))] if rows else []
    return View(data, [*sheets, Sheet((), [], title=conclusion + more)])


def conclusion_of(slicing: Slicing, slices: Iterable[Slice]) -> str:
    """In a sentence."""
    tail = slicing.tail
    if not tail.num_tail:
        return (
            f"not enough requests: {tail.num_requests} had a first token, and {LEAST_REQUESTS} are "
            "needed to tell a slow slice from chance"
        )
    first = next((each for each in slices if each.stands_out and each.explains), None)
    over = f"the requests over p{tail.over_percent} ({tail.over_ms:.0f} ms)"
    if first is None:
        return f"no slice stands out: {over} are spread like all others"
    stage = first.mostly
    mostly = f"; mostly {IN_WORDS[stage]}" if stage is not None else ""
    return f"{_in_words(first)} explains {first.explains:.0%} of {over}{mostly}"


def _in_words(found: Slice) -> str:
    """A worker has a name; other slices are named with what they are of."""
    return found.value if found.by is By.WORKER else f"{found.by} {found.value}"


def _title(slicing: Slicing, heard: RoutersHeard[Recent]) -> str:
    tail, ttfts = slicing.tail, slicing.ttfts_ms
    quantiles = ", ".join(
        f"p{share * 100:.0f} {_ms(quantile(ttfts, share))}" for share in (0.5, 0.95, 0.99)
    )
    failed = f", {tail.num_failed} failed before it" if tail.num_failed else ""
    routers = "1 router" if len(heard.answers) == 1 else f"{len(heard.answers)} routers"
    num_not_asked = _num_not_asked(heard)
    others = f" ({num_not_asked} more not asked: name all with --grpc)" if num_not_asked else ""
    return (
        f"{tail.num_requests} requests with a first token{failed}, of {routers}{others}; "
        f"ms: {quantiles}"
    )


def _num_not_asked(heard: RoutersHeard[Recent]) -> int:
    known = max((said.num_routers for said in heard.answers.values()), default=0)
    return max(0, known - len(heard.answers) - len(heard.failures))


def _fields(each: Slice) -> Mapping[str, object]:
    """For programs."""
    return {
        **asdict(each),
        "by": each.by.value,
        "stage_shares": {stage.value: share for stage, share in each.stage_shares.items()},
        "mostly": each.mostly.value if each.mostly else None,
    }


def _row(each: Slice) -> tuple[str, ...]:
    mostly = each.mostly
    shares = [f"{each.stage_shares.get(stage, 0.0):.0%}" for stage in TtftStage]
    times = (each.ttft_p50_ms, each.ttft_p95_ms, each.ttft_p99_ms, each.itl_p95_ms)
    return (
        *(each.by.value, each.value, str(each.count), str(each.num_failed)),
        *(map(_ms, times)),
        *(f"{each.share_of_all:.0%}", f"{each.share_of_tail:.0%}", _explained(each)),
        f"{mostly.value} {each.stage_shares[mostly]:.0%}" if mostly and each.num_tail else "-",
        *shares,
    )


def _explained(each: Slice) -> str:
    if each.explains is None:
        return "too few" if each.count < LEAST_IN_SLICE else "no others"
    return f"{each.explains:.0%}" if each.stands_out else "-"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
