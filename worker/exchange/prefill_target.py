"""Whom blocks can be asked of."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.identity import WorkerKey
from protos import worker_pb2


@dataclass(frozen=True, slots=True)
class PrefillTarget:
    """A worker that the router proposes: to prefill, or to hand on what it has cached."""

    key: WorkerKey
    address: str
    """host:port of its gRPC server."""

    @classmethod
    def from_wire(cls, message: worker_pb2.PrefillTarget) -> PrefillTarget:
        """Not checked: an address where nobody listens costs a fallback."""
        return cls(WorkerKey(message.worker_id, message.incarnation), message.address)

    def to_wire(self) -> worker_pb2.PrefillTarget:
        """The inverse of `from_wire`."""
        return worker_pb2.PrefillTarget(
            worker_id=self.key.worker_id, incarnation=self.key.incarnation, address=self.address
        )
