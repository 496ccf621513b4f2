"""`get links`: what went over the link of each pair of a prefill and a decode worker."""

from __future__ import annotations

from cli.question import ROUTER_TIMEOUT_S
from cli.view import Sheet, View
from cluster.dial.dialer import OperatorLink
from protos import fleet_watch_pb2

_HEADING = ("PREFILL", "DECODE", "TRANSFERS", "MB", "FAILED", "PRICED MB/S", "MEASURED", "NOTE")


async def links_view(router: OperatorLink, limit: int) -> View:
    """A row for each pair, most bytes first. What is not measured is priced as all are."""
    asked = fleet_watch_pb2.LinksRequest(limit=limit)
    answer = await router.links(asked, timeout_s=ROUTER_TIMEOUT_S)
    data = [_fields(link, answer.bytes_per_s) for link in answer.links]
    rows = [_row(link, answer.bytes_per_s) for link in answer.links]
    title = f"the first {limit} links (--limit)" if answer.has_more else ""
    return View(data, [Sheet(_HEADING, rows, title=title)], "no pair of workers has joined")


def _fields(link: fleet_watch_pb2.KvLink, usual_bytes_per_s: float) -> dict[str, object]:
    return {
        "prefill_worker": link.prefill_worker,
        "decode_worker": link.decode_worker,
        "num_transfers": link.num_transfers,
        "num_bytes": link.num_bytes,
        "num_failed": link.num_failed,
        "priced_bytes_per_s": _priced(link, usual_bytes_per_s),
        "is_measured": link.HasField("bytes_per_s"),
        "problem": link.problem,
    }


def _row(link: fleet_watch_pb2.KvLink, usual_bytes_per_s: float) -> tuple[str, ...]:
    return (
        *(link.prefill_worker, link.decode_worker, str(link.num_transfers)),
        *(f"{link.num_bytes / 1e6:.1f}", str(link.num_failed)),
        f"{_priced(link, usual_bytes_per_s) / 1e6:.1f}",
        *("yes" if link.HasField("bytes_per_s") else "no", link.problem or "-"),
    )


def _priced(link: fleet_watch_pb2.KvLink, usual_bytes_per_s: float) -> float:
    return link.bytes_per_s if link.HasField("bytes_per_s") else usual_bytes_per_s
