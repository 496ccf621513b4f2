"""Which of several models a router gives new requests, while a rolling update replaces one by
another.

    one model is here -> that one
    several           -> of those with a decode worker that takes work: one that has prefill
                         workers, too, before one that lacks them; then the one with most workers
                         that take work; then the one that has the requests now

What a request has begun with it goes on with, and what is cached stays known: nothing is forgotten
when the choice falls on another model.
"""

from __future__ import annotations

from collections.abc import Iterable

from cluster.logs import get_logger
from router.fleet.member import FleetMember

_log = get_logger("fleet")


class ModelChoice:
    """Of one router. From the event loop."""

    def __init__(self) -> None:
        self._chosen: str | None = None

    def of(
        self, candidates: list[FleetMember], everybody: Iterable[FleetMember]
    ) -> list[FleetMember]:
        """The candidates that are of the chosen model; all where none is: nothing is better than
        another model, for a request that has not begun."""
        if len({item.model_digest for item in candidates}) < 2:
            return candidates
        chosen = self.choose(everybody)
        return [item for item in candidates if item.model_digest == chosen] or candidates

    def choose(self, everybody: Iterable[FleetMember]) -> str | None:
        """The digest of the model that new requests go to; None where no decode worker takes
        work."""
        at_work = [item for item in everybody if item.takes_work]
        models = {item.model_digest for item in at_work if item.is_decode}
        if not models:
            return None
        best = max(models, key=lambda model: (self._standing(model, at_work), model))
        if best != self._chosen:
            if self._chosen is not None:
                _log.info("new requests go to workers of another model", model=best)
            self._chosen = best
        return best

    def _standing(self, model: str, at_work: list[FleetMember]) -> tuple[bool, int, bool]:
        of_model = [item for item in at_work if item.model_digest == model]
        has_both = any(not item.is_decode for item in of_model)
        return has_both, len(of_model), model == self._chosen
