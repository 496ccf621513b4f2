"""What a decode worker answers where prefill workers do: it gives away what it has cached."""

from __future__ import annotations

import grpc

from cluster.errors import InvalidRequest
from cluster.rpc import abort
from protos import handoff_pb2, handoff_pb2_grpc
from worker.exchange.cache_exports import CacheExports


class CachedPrefixes(handoff_pb2_grpc.PrefillWorkerServicer):
    """The PrefillWorker service of a worker that computes no prompt for others."""

    def __init__(self, exports: CacheExports) -> None:
        self._exports = exports

    async def Handshake(
        self, request: handoff_pb2.HandshakeRequest, context: grpc.aio.ServicerContext
    ) -> handoff_pb2.HandshakeResponse:
        """See CacheExports."""
        return await self._exports.shake_hands(request, context)

    async def Prefill(
        self,
        request: handoff_pb2.PrefillRequest,
        context: grpc.aio.ServicerContext[handoff_pb2.PrefillRequest, handoff_pb2.PrefillEvent],
    ) -> None:
        """Of what is cached, and of nothing else."""
        if request.cached_only:
            await self._exports.serve(request, context)
        else:
            refusal = InvalidRequest("a decode worker computes no prompt for another worker")
            await abort(context, refusal)
