"""Grammars that clients ask for and do not get. How long trials take is told by
`splitserve_text_task_seconds` of the grammar worker."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

REASONS = ("invalid", "costly", "untried", "unsupported")


class GrammarMetrics:
    """Of one router."""

    def __init__(self, registry: CollectorRegistry) -> None:
        refusals = Counter(
            "splitserve_grammar_refusals",
            "Requests whose grammar was tried out in vain: invalid, too costly, not in time, "
            "or of a model that follows none",
            ["reason"],
            registry=registry,
        )
        self._refusals = {reason: refusals.labels(reason) for reason in REASONS}

    def refused(self, reason: str) -> None:
        """One of REASONS."""
        self._refusals[reason].inc()
