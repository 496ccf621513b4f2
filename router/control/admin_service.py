"""What an operator may ask of this router about single requests."""

from __future__ import annotations

import grpc

from protos import router_admin_pb2, router_admin_pb2_grpc
from router.control.decision_message import decision_to_wire
from router.telemetry.decisions import DecisionLog

ADMIN_SERVICE_NAME = "splitserve.worker.v1.RouterAdmin"


class RouterAdminService(router_admin_pb2_grpc.RouterAdminServicer):
    """The gRPC servicer; reads only."""

    def __init__(self, decisions: DecisionLog) -> None:
        self._decisions = decisions

    async def Explain(
        self, request: router_admin_pb2.ExplainRequest, context: grpc.aio.ServicerContext
    ) -> router_admin_pb2.ExplainResponse:
        """Every decision that is kept under the client's id; an unknown id has none."""
        found = self._decisions.known_as(request.request_id) if request.request_id else []
        return router_admin_pb2.ExplainResponse(decisions=map(decision_to_wire, found))
