"""Which requests of a router are traced: as their clients and the operator say."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from cluster.common_options import SamplingOptions
from cluster.config import RouterOptions
from cluster.tracing.context import DrawBytes, TraceContext, context_of, new_trace
from cluster.tracing.tracing import Tracing
from cluster.world import World
from router.telemetry.request_trace import RequestTrace

CHAT = "chat"
TEXT_COMPLETION = "text_completion"
EMBEDDINGS = "embeddings"
_RANDOM_BITS = 64


class RequestTracing:
    """Of one router. From the event loop; `tracing` is started and closed by its owner."""

    def __init__(
        self,
        tracing: Tracing,
        rule: SamplingOptions,
        model: str,
        *,
        draw: DrawBytes = os.urandom,
    ) -> None:
        self.tracing = tracing
        self._rule, self._model, self._draw = rule, model, draw

    @classmethod
    def of(
        cls, options: RouterOptions, model: str, registry: CollectorRegistry, world: World
    ) -> RequestTracing | None:
        """None where nothing is traced. Raises ConfigError."""
        name = f"{socket.gethostname()}:{options.port}"
        tracing = Tracing.of(options.traces, "router", name, registry, world)
        return None if tracing is None else cls(tracing, options.sampled, model)

    def begin(
        self, parents: Sequence[str], states: Sequence[str], operation: str
    ) -> RequestTrace | None:
        """Of a request at a door, with all its headers named `traceparent` and `tracestate`. None:
        it is not traced."""
        return self.begin_each(1, parents, states, operation)[0]

    def begin_each(
        self, num_prompts: int, parents: Sequence[str], states: Sequence[str], operation: str
    ) -> list[RequestTrace | None]:
        """Of a body with so many prompts, each a request. Headers are read once."""
        is_read = self._rule.trace_parent != "ignored"
        parent = context_of(parents, states) if is_read else None
        chosen = (self._chosen(parent) for _ in range(num_prompts))
        return [None if context is None else self._trace(context, operation) for context in chosen]

    def _trace(self, context: TraceContext, operation: str) -> RequestTrace:
        return RequestTrace(self.tracing.part(context), operation, self._model)

    def _chosen(self, parent: TraceContext | None) -> TraceContext | None:
        rule = self._rule
        if parent is None:
            mine = new_trace(self._draw)
            return mine if self._is_drawn(mine) else None
        if not parent.is_sampled:
            return None
        if rule.trace_parent == "decides":
            return parent
        # by bits of our own: who names a trace would else choose an id that is drawn
        return parent if self._is_in_share(self._draw(_RANDOM_BITS // 8)) else None

    def _is_drawn(self, context: TraceContext) -> bool:
        """By the id that we gave it, as OpenTelemetry's TraceIdRatioBased: services that draw the
        same share have the same traces."""
        return self._is_in_share(context.trace_id)

    def _is_in_share(self, random: bytes) -> bool:
        drawn = int.from_bytes(random) & ((1 << _RANDOM_BITS) - 1)
        return drawn < round(self._rule.trace_ratio * (1 << _RANDOM_BITS))
