"""A process's tracing, where an operator has asked for it: parts of requests, and their export.

of -> start -> part (one for each traced request) -> its spans wait -> exported    -> close
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from prometheus_client import CollectorRegistry

from cluster import VERSION
from cluster.common_options import TraceOptions
from cluster.process.background import Background, nothing_needed
from cluster.tracing.context import DrawBytes, TraceContext
from cluster.tracing.export import SpanCounts, SpanExport, SpanWriter
from cluster.tracing.part import TracePart
from cluster.tracing.wall_time import WallTime
from cluster.world import World


class Tracing:
    """Of one process. From the event loop; `start` once, then `close` once."""

    def __init__(
        self,
        writer: SpanWriter,
        registry: CollectorRegistry,
        world: World,
        *,
        draw: DrawBytes = os.urandom,
    ) -> None:
        self._export = SpanExport(writer, SpanCounts(registry))
        self._background = Background(nothing_needed, clock=world.clock, sleep=world.sleep)
        self._clock, self._draw = world.clock, draw

    @classmethod
    def of(
        cls,
        options: TraceOptions,
        process: str,
        name: str,
        registry: CollectorRegistry,
        world: World,
    ) -> Tracing | None:
        """None where there is no collector. `process`: router, prefill or decode; `name`: which of
        them. Raises ConfigError for a collector that cannot be asked."""
        if options.otlp_endpoint is None:
            return None
        from cluster.tracing.otlp import OtlpWriter  # 280 ms of imports, of use only here

        writer = OtlpWriter(options.otlp_endpoint, _resource_of(process, name))
        return cls(writer, registry, world)

    def start(self) -> None:
        """Spans are exported from now on."""
        self._background.keep("traces", self._export.run)

    async def close(self) -> None:
        """What waits is exported, for a moment."""
        await self._background.close()
        await self._export.close()

    def part(self, context: TraceContext) -> TracePart:
        """This process's of one request, which whoever asked says is traced."""
        return TracePart(context, emit=self._export.add, wall=self._wall_time, draw=self._draw)

    def _wall_time(self) -> WallTime:
        return WallTime(self._clock)


def _resource_of(process: str, name: str) -> Mapping[str, str]:
    return {
        "service.name": f"splitserve-{process}",
        "service.namespace": "splitserve",
        "service.version": VERSION,
        "service.instance.id": name,
    }
