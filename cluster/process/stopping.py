"""How a process that serves comes to its end: what runs is finished, unless somebody insists."""

from __future__ import annotations

from cluster.logs import get_logger
from cluster.process.background import until_one_ends
from cluster.process.lifespan import Lifespan
from cluster.process.signals import StopRequests

_log = get_logger("process")


async def finish_requests(
    lifespan: Lifespan, stop_requests: StopRequests, timeout_s: float
) -> None:
    """Returns when no request runs, after `timeout_s`, or when the end is wanted at once."""
    await until_one_ends(lifespan.wait_idle(timeout_s), stop_requests.stop_now.wait())
    _log.info("stopping", num_requests_cut_off=lifespan.num_admitted)


def exit_code_of(stop_requests: StopRequests) -> int:
    """0 when an operator asked for the end; 1 when the process could not go on by itself."""
    if stop_requests.loss is None:
        _log.info("stopped")
        return 0
    _log.error(
        "the process ends, because a part that it needs has ended", cause=str(stop_requests.loss)
    )
    return 1
