"""The prefill workers that this decode worker has shaken hands with.

    begun -> shaken hands (the engine is told) -> connection lost, forgotten or replaced: gone,
                                                  and the engine lets go of its pool

One handshake per incarnation, shared by all requests that wait for it. A process that fails is
forgotten, not banned: the next request shakes hands again. Who has shaken hands replaces earlier
incarnations of the same worker; a request with an outdated target cannot do that. A process that
leaves without a word is gone with its connection: there are never more peers than live workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from cluster.dial.dialer import Dialer, PrefillLink
from cluster.errors import (
    DeadlineExceeded,
    SplitserveError,
    TransferFailed,
    WorkerLost,
    WrongWorker,
)
from cluster.identity import WorkerKey
from cluster.logs import get_logger
from cluster.pairing import check_pairing
from cluster.process.background import Background
from cluster.wire import pairing_from_wire, pairing_to_wire, peer_from_wire
from cluster.worker_identity import WorkerIdentity
from engine.contract.commands import Command, Connect, Disconnect
from protos import handoff_pb2
from worker.exchange.prefill_target import PrefillTarget
from worker.exchange.source_blocks import BlockSizes

HANDSHAKE_TIMEOUT_S = 5.0
_log = get_logger("worker.peers")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPeer:
    """A prefill worker whose blocks this worker can read."""

    key: WorkerKey
    link: PrefillLink
    block_sizes: BlockSizes


@dataclass(frozen=True, slots=True, eq=False)
class _Acquaintance:
    """One process, from the first word to the last."""

    peer: asyncio.Future[PrefillPeer]
    """Done when hands are shaken."""
    life: asyncio.Task[None]
    """Ends, and closes the link, when the process is gone or forgotten."""


class PrefillPeers:
    """At most one connected process per worker id. All calls from the event loop."""

    def __init__(
        self,
        we: WorkerIdentity,
        send_to_engine: Callable[[Command], None],
        dialer: Dialer,
        background: Background,
    ) -> None:
        self._we = we
        self._send = send_to_engine
        self._dialer = dialer
        self._background = background
        self._known: dict[WorkerKey, _Acquaintance] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def connect(self, target: PrefillTarget) -> PrefillPeer:
        """The connected peer, after a handshake when it is new; the engine is told before.

        Raises PairingMismatch, or WorkerLost when it does not answer or is another process.
        """
        known = self._known.get(target.key) or self._begin(target)
        await asyncio.wait((known.peer,))  # a caller that leaves does not end it for others
        worker_id = target.key.worker_id
        if known.peer.cancelled():
            raise WorkerLost(f"{worker_id} was lost during the handshake")
        peer = known.peer.result()
        if self._known.get(target.key) is not known:
            raise WorkerLost(f"{worker_id} was lost after the handshake")
        return peer

    def forget(self, key: WorkerKey) -> None:
        """That process failed: its reads fail, and the next request shakes hands again."""
        known = self._known.pop(key, None)
        if known is None:
            return
        self._send(Disconnect(key.incarnation))
        known.peer.cancel()
        known.life.cancel()

    def close(self) -> None:
        """Forgets everyone; the background's owner waits until every link is closed."""
        for key in list(self._known):
            self.forget(key)

    def _begin(self, target: PrefillTarget) -> _Acquaintance:
        peer: asyncio.Future[PrefillPeer] = asyncio.get_running_loop().create_future()
        peer.add_done_callback(_note_read)
        name = f"connection to {target.key.worker_id}"
        life = self._background.once(name, self._live(target, peer))
        known = self._known[target.key] = _Acquaintance(peer, life)
        return known

    async def _live(self, target: PrefillTarget, met: asyncio.Future[PrefillPeer]) -> None:
        """From the handshake until the connection is gone; then nobody finds it any more."""
        link = self._dialer.prefill_worker(target.address)
        try:
            sizes = await self._shake_hands(link, target)
            if not met.done():
                met.set_result(PrefillPeer(key=target.key, link=link, block_sizes=sizes))
            self._forget_earlier(target.key)
            await link.lost()
            _log.info("a prefill worker is disconnected", prefill_worker=target.key.worker_id)
        except SplitserveError as error:
            if not met.done():
                met.set_exception(error)
        finally:
            met.cancel()
            known = self._known.get(target.key)
            if known is not None and known.peer is met:
                del self._known[target.key]
                self._send(Disconnect(target.key.incarnation))
            await link.close()

    def _forget_earlier(self, key: WorkerKey) -> None:
        """This process has answered for the worker: those before it are no more."""
        for other, known in list(self._known.items()):
            if other.worker_id == key.worker_id and other != key and known.peer.done():
                self.forget(other)

    async def _shake_hands(self, link: PrefillLink, target: PrefillTarget) -> BlockSizes:
        worker_id = target.key.worker_id
        request = handoff_pb2.HandshakeRequest(
            pairing=pairing_to_wire(self._we.pairing), worker_id=self._we.key.worker_id
        )
        try:
            reply = await link.shake_hands(request, timeout_s=HANDSHAKE_TIMEOUT_S)
            return self._admit(reply, target)
        except DeadlineExceeded:
            raise WorkerLost(
                f"{worker_id} did not answer the handshake within {HANDSHAKE_TIMEOUT_S:.0f} s"
            ) from None
        except SplitserveError:
            raise
        except Exception as failure:
            _log.exception(
                "a prefill worker's handshake could not be read; nothing is read from it",
                prefill_worker=worker_id,
            )
            raise TransferFailed(
                f"the handshake with {worker_id} cannot be read ({type(failure).__name__})"
            ) from failure

    def _admit(self, reply: handoff_pb2.HandshakeResponse, target: PrefillTarget) -> BlockSizes:
        """Raises PairingMismatch or WrongWorker; otherwise the engine may read from there."""
        ours, theirs = self._we.pairing, pairing_from_wire(reply.pairing)
        check_pairing(ours, theirs, peer=target.key.worker_id)
        if reply.incarnation != target.key.incarnation:
            raise WrongWorker(
                f"{target.key.worker_id} at {target.address} is process {reply.incarnation[:64]}, "
                f"not {target.key.incarnation[:64]}: it restarted"
            )
        self._send(Connect(reply.incarnation, peer_from_wire(reply.peer)))
        _log.info(
            "connected to a prefill worker",
            prefill_worker=target.key.worker_id,
            address=target.address,
        )
        return BlockSizes(ours.block_size_tokens, theirs.block_size_tokens)


def _note_read(met: asyncio.Future[PrefillPeer]) -> None:
    """Nobody may be left to hear of a failed handshake."""
    if not met.cancelled():
        met.exception()
