"""The prefill workers that this decode worker has shaken hands with.

One handshake per incarnation, shared by all requests that wait for it. A process that fails is
forgotten, not banned: the next request shakes hands again. Who has shaken hands replaces earlier
incarnations of the same worker; a request with an outdated target cannot do that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from cluster.errors import SplitserveError, TransferFailed, WorkerLost
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.pairing import Pairing, check_pairing
from cluster.rpc import error_of, open_channel
from cluster.wire import pairing_from_wire, pairing_to_wire, peer_from_wire
from engine.contract.commands import Command, Connect, Disconnect
from protos import handoff_pb2, handoff_pb2_grpc, worker_pb2

HANDSHAKE_TIMEOUT_S = 5.0
_log = get_logger("decode_worker.peers")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPeer:
    """A prefill worker whose blocks this worker can read."""

    worker_id: str
    incarnation: str
    stub: handoff_pb2_grpc.PrefillWorkerStub
    channel: grpc.aio.Channel


class PrefillPeers:
    """At most one connected process per worker id. All calls from the event loop."""

    def __init__(
        self, worker_id: str, pairing: Pairing, send_to_engine: Callable[[Command], None]
    ) -> None:
        self._worker_id = worker_id
        self._pairing = pairing
        self._send = send_to_engine
        self._handshakes: dict[WorkerKey, asyncio.Task[PrefillPeer]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def connect(self, target: worker_pb2.PrefillTarget) -> PrefillPeer:
        """The connected peer, after a handshake when it is new; the engine is told before.

        Raises PairingMismatch, or WorkerLost when it does not answer or is another incarnation.
        """
        key = WorkerKey(target.worker_id, target.incarnation)
        handshake = self._handshakes.get(key) or self._begin(key, target)
        await asyncio.wait((handshake,))  # a caller that leaves does not end it for others
        if handshake.cancelled():
            raise WorkerLost(f"{target.worker_id} was lost while shaking hands")
        peer = handshake.result()
        if self._handshakes.get(key) is not handshake:
            raise WorkerLost(f"{target.worker_id} was lost after shaking hands")
        return peer

    def forget(self, key: WorkerKey) -> None:
        """That process failed: its reads fail, and the next request shakes hands again."""
        handshake = self._handshakes.pop(key, None)
        if handshake is None:
            return
        self._send(Disconnect(key.incarnation))
        closing = asyncio.create_task(_close(handshake))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes every channel."""
        for key in list(self._handshakes):
            self.forget(key)
        await asyncio.gather(*self._closing)

    def _begin(self, key: WorkerKey, target: worker_pb2.PrefillTarget) -> asyncio.Task[PrefillPeer]:
        handshake = asyncio.create_task(self._shake_hands(target))
        self._handshakes[key] = handshake

        def settle(task: asyncio.Task[PrefillPeer]) -> None:
            if task.cancelled():
                return
            if task.exception() is not None:
                self.forget(key)
            elif self._handshakes.get(key) is task:
                self._forget_earlier(key)

        handshake.add_done_callback(settle)
        return handshake

    def _forget_earlier(self, key: WorkerKey) -> None:
        """This process has answered for the worker: those before it are no more."""
        for other, handshake in list(self._handshakes.items()):
            if other.worker_id == key.worker_id and other != key and handshake.done():
                self.forget(other)

    async def _shake_hands(self, target: worker_pb2.PrefillTarget) -> PrefillPeer:
        channel = open_channel(target.address)
        try:
            return await self._introduce(channel, target)
        except BaseException as failure:
            await channel.close()
            if isinstance(failure, grpc.aio.AioRpcError):
                raise error_of(failure) from failure
            if isinstance(failure, SplitserveError) or not isinstance(failure, Exception):
                raise
            _log.exception("a handshake could not be handled", prefill_worker=target.worker_id)
            raise TransferFailed(
                f"the handshake with {target.worker_id} cannot be read ({type(failure).__name__})"
            ) from failure

    async def _introduce(
        self, channel: grpc.aio.Channel, target: worker_pb2.PrefillTarget
    ) -> PrefillPeer:
        stub = handoff_pb2_grpc.PrefillWorkerStub(channel)
        request = handoff_pb2.HandshakeRequest(
            pairing=pairing_to_wire(self._pairing), worker_id=self._worker_id
        )
        reply = await stub.Handshake(request, timeout=HANDSHAKE_TIMEOUT_S)
        check_pairing(self._pairing, pairing_from_wire(reply.pairing), peer=target.worker_id)
        if reply.incarnation != target.incarnation:
            raise WorkerLost(
                f"{target.worker_id} at {target.address} is incarnation {reply.incarnation}, "
                f"not {target.incarnation}: it restarted"
            )
        self._send(Connect(reply.incarnation, peer_from_wire(reply.peer)))
        _log.info("paired", prefill_worker=target.worker_id, address=target.address)
        return PrefillPeer(
            worker_id=target.worker_id, incarnation=reply.incarnation, stub=stub, channel=channel
        )


async def _close(handshake: asyncio.Task[PrefillPeer]) -> None:
    handshake.cancel()
    done, _ = await asyncio.wait((handshake,))
    for task in done:
        if not task.cancelled() and task.exception() is None:
            await task.result().channel.close()
