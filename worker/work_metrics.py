"""What an engine's steps took since its start, and for what: of its Prometheus page."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from cluster.generation import EngineLoad

_COUNTED = {
    "prefill": ("prefill_busy_s", "prefilled_tokens"),
    "decode": ("decode_busy_s", "decoded_tokens"),
}
"""Fields of EngineLoad, by kind."""

_OF_GRAMMARS = {
    "compiled_grammars": ("grammars_compiled", "Grammars that were compiled for answers."),
    "grammar_compile_s": ("grammar_compile_seconds", "Seconds that this took, beside the steps."),
    "grammar_masks": ("grammar_masks", "Masks of tokens that grammars allow."),
    "grammar_mask_s": ("grammar_mask_seconds", "Seconds that they took, beside forward passes."),
}
"""Fields of EngineLoad: a counter's name and help."""


class WorkMetrics:
    """Counters of numbers that an engine has counted itself."""

    def __init__(self, registry: CollectorRegistry) -> None:
        busy = Counter(
            "splitserve_worker_busy_seconds",
            "Seconds of steps, by what they computed: prefill or decode. The rest is idle.",
            ["kind"],
            registry=registry,
        )
        tokens = Counter(
            "splitserve_worker_computed_tokens",
            "Tokens of those steps, whoever asked for them.",
            ["kind"],
            registry=registry,
        )
        self._counters: list[tuple[Counter, str]] = [
            (counter.labels(kind), name)
            for kind, names in _COUNTED.items()
            for counter, name in zip((busy, tokens), names, strict=True)
        ]
        self._counters += [
            (Counter(f"splitserve_worker_{name}", words, registry=registry), field)
            for field, (name, words) in _OF_GRAMMARS.items()
        ]
        self._last = EngineLoad()

    def take(self, load: EngineLoad) -> None:
        """The engine's latest numbers, which never fall."""
        last, self._last = self._last, load
        for counter, name in self._counters:
            counter.inc(max(0, getattr(load, name) - getattr(last, name)))
