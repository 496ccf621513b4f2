"""One NIXL agent: a name, a UCX worker with its progress thread, and registered memory.

Measured with NIXL 1.5.1 (`benchmarks/bench_transfer.py`):
- With the library's own setting the progress thread spins and takes a whole core: on two busy cores
  64 blocks over TCP took 205 ms. With a wake-up every PROGRESS_WAKEUP_US it takes 0.1 % of a core
  and the same blocks 30 ms, as traffic wakes it at once.
- Neither releasing a handle nor removing a remote agent stops a read that is under way over TCP:
  its bytes arrive later, in memory that may have another owner. Only the end of the agent does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.errors import TransferFailed
from kvtransfer.nixl_library import nixl_bindings, nixl_errors, ucx_environment

PROGRESS_WAKEUP_US = 100_000
"""The progress thread's poll timeout; traffic wakes it earlier."""

BACKEND = "UCX"


@dataclass(frozen=True, slots=True)
class PostedRead:
    """What has become of a request to read."""

    handle: int
    is_done: bool
    error: str = ""
    """Why it went wrong half-way; empty otherwise."""


class TransferAgent:
    """Owns the agent. Not thread-safe: one thread makes it, uses it and closes it."""

    def __init__(self, name: str, *, has_progress_thread: bool = True) -> None:
        """Without the thread, only asking whether a read is done brings it forward.

        Raises TransferFailed when UCX cannot start.
        """
        self.name = name
        self._bindings = nixl_bindings()
        config = self._bindings.nixlAgentConfig()
        config.useProgThread = has_progress_thread
        config.pthrDelay = PROGRESS_WAKEUP_US
        try:
            with ucx_environment():
                self._agent: Any = self._bindings.nixlAgent(name, config)
                self._backend = self._agent.createBackend(BACKEND, {})
        except nixl_errors() as error:
            raise TransferFailed(
                f"NIXL agent {name!r} cannot start its {BACKEND} backend ({error}); check UCX_TLS"
            ) from error

    def register(self, address: int, num_bytes: int, memory: str, device_id: int) -> None:
        """Makes memory readable by peers, and usable for reads, until `close`."""
        region = [(address, num_bytes, device_id, "")]
        descriptors = self._bindings.nixlRegDList(self._kind(memory), region)
        try:
            self._agent.registerMem(descriptors, [self._backend])
        except nixl_errors() as error:
            raise TransferFailed(
                f"NIXL cannot register {num_bytes} bytes of {memory} on device {device_id} "
                f"({error}); is UCX built for this device?"
            ) from error

    def metadata(self) -> bytes:
        """Connection data for peers. Take it when all memory is registered."""
        return bytes(self._agent.getLocalMD())

    def add_peer(self, name: str, metadata: bytes) -> None:
        """Loads a peer's metadata. Raises TransferFailed when it is unreadable or not its own."""
        try:
            loaded = bytes(self._agent.loadRemoteMD(metadata)).decode(errors="replace")
            if loaded == name:
                self._agent.makeConnection(name, [self._backend])
                return
        except nixl_errors() as error:
            raise TransferFailed(f"NIXL cannot connect to {name!r}: {error}") from error
        self.remove_peer(loaded)
        raise TransferFailed(f"metadata of {name!r} belongs to agent {loaded!r}; connect again")

    def remove_peer(self, name: str) -> None:
        """No transfer can be started afterwards. Does not stop one that is under way."""
        try:
            self._agent.invalidateRemoteMD(name)
        except nixl_errors():
            return  # it is gone already

    def prepare(
        self, owner: str | None, address: int, row_bytes: int, num_rows: int, place: tuple[str, int]
    ) -> int:
        """A descriptor list of equal rows, of a peer's or (None) of the local memory.

        `place` is (memory, device id). Raises TransferFailed when the memory is not registered.
        """
        memory, device_id = place
        rows = np.array([[address, row_bytes, device_id, row_bytes, num_rows]], dtype=np.uint64)
        agent = self._bindings.NIXL_INIT_AGENT if owner is None else owner
        try:
            return int(self._agent.prepXferDlist(agent, self._kind(memory), rows, [self._backend]))
        except nixl_errors() as error:
            raise TransferFailed(
                f"{num_rows} rows of {row_bytes} bytes at {owner or 'this process'} cannot be "
                f"read: they are not registered there ({error})"
            ) from error

    def release_list(self, descriptors: int) -> None:
        """The inverse of `prepare`."""
        try:
            self._agent.releasedDlistH(descriptors)
        except nixl_errors():
            return  # freed with its peer

    def post_read(
        self, local: int, local_rows: NDArray[np.int32], remote: int, remote_rows: NDArray[np.int32]
    ) -> PostedRead:
        """Starts a read of rows. Raises a NIXL error when nothing was started."""
        return self._post(
            self._agent.makeXferReq(
                self._bindings.NIXL_READ,
                local,
                local_rows,
                remote,
                remote_rows,
                "",
                [self._backend],
            )
        )

    def post_pieces(
        self,
        owner: str,
        local: tuple[NDArray[np.uint64], str],
        remote: tuple[NDArray[np.uint64], str],
    ) -> PostedRead:
        """Starts a read of pieces of any size, pairwise: both sides are (rows of [address, bytes,
        device id], memory). Raises a NIXL error when nothing was started."""
        here, there = (
            self._bindings.nixlXferDList(self._kind(memory), pieces)
            for pieces, memory in (local, remote)
        )
        return self._post(
            self._agent.createXferReq(
                self._bindings.NIXL_READ, here, there, owner, "", [self._backend]
            )
        )

    def _post(self, handle: int) -> PostedRead:
        try:
            status = self._agent.postXferReq(handle, "")
        except nixl_errors() as error:  # some of the rows may be under way
            return PostedRead(int(handle), is_done=False, error=str(error) or type(error).__name__)
        return PostedRead(int(handle), is_done=status == self._bindings.NIXL_SUCCESS)

    def is_done(self, handle: int) -> bool:
        """Raises a NIXL error when the transfer has ended badly."""
        return bool(self._agent.getXferStatus(handle) == self._bindings.NIXL_SUCCESS)

    def release(self, handle: int) -> None:
        """Frees a handle. Only for transfers that have ended: this does not stop one."""
        try:
            self._agent.releaseXferReq(handle)
        except nixl_errors():
            return  # freed with its peer

    def close(self) -> None:
        """Ends the agent: its connections are cut and no byte lands any more. Idempotent."""
        self._agent = None

    def _kind(self, memory: str) -> Any:
        return self._bindings.VRAM_SEG if memory == "VRAM" else self._bindings.DRAM_SEG
