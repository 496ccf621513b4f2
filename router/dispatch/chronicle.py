"""What befalls requests on their way, in metrics and in the log."""

from __future__ import annotations

from cluster.errors import InternalError, SplitserveError, status_of
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from router.dispatch.journey import Journey
from router.fleet.token_taker import TakerFault
from router.telemetry.diary import Diary, Happening
from router.telemetry.metrics import RouterMetrics

_log = get_logger("dispatcher")


class Chronicle:
    """Of one router."""

    def __init__(self, metrics: RouterMetrics, diary: Diary) -> None:
        self._metrics = metrics
        self._diary = diary

    def gone_on(
        self, journey: Journey, tried: WorkerKey, cause: str, error: SplitserveError
    ) -> None:
        """It has left a worker that failed, or stops, for another one."""
        facts = {
            "request_id": journey.request_id,
            "worker_id": tried.worker_id,
            "code": cause,
            "error": error.message,
        }
        if journey.has_moved:
            self._metrics.continued.labels(cause).inc()
            self._diary.note(Happening.MOVED, tried.worker_id, cause)
            num_tokens = journey.request.num_begun_tokens
            _log.warning("an answer goes on with another worker", num_tokens=num_tokens, **facts)
        else:
            self._metrics.retries.inc()
            self._diary.note(Happening.RETRIED, tried.worker_id, cause)
            _log.warning(
                "a worker failed before the first token; the request goes to another worker",
                **facts,
            )

    def gave_way(self, journey: Journey, error: SplitserveError) -> None:
        """It is back in the line."""
        self._metrics.classes.gave_way(journey.priority)
        self._diary.note(Happening.PREEMPTED, journey.priority, "for requests of a higher class")
        _log.info(
            "a request gave its place to a higher class",
            request_id=journey.request_id,
            reason=error.message,
        )

    def pause(self, journey: Journey, pause_s: float) -> None:
        """Its client has waited so long between tokens of two workers."""
        self._metrics.pause.observe(pause_s)
        worker = journey.worker
        _log.info(
            "an answer has gone on",
            request_id=journey.request_id,
            worker_id=worker.worker_id if worker is not None else None,
            num_tokens=journey.request.num_begun_tokens,
            pause_ms=round(pause_s * 1000, 1),
        )

    def unheard(self, journey: Journey, error: SplitserveError) -> None:
        """Its text is complete, and its worker lost or late."""
        _log.warning(
            "the answer is complete, but without its worker's usage and timing",
            request_id=journey.request_id,
            code=status_of(error).code,
            error=error.message,
        )


def outcome_of(end: BaseException) -> str:
    """An error's code; "cancelled" when the caller closed the iterator or was cancelled."""
    if isinstance(end, SplitserveError):
        return status_of(end).code
    if isinstance(end, TakerFault):
        return "cancelled"  # its reader has ended it
    return status_of(InternalError("")).code if isinstance(end, Exception) else "cancelled"
