"""Who may see what a router counts, and which version it is, at the port of its clients."""

from __future__ import annotations

from cluster.errors import Unauthenticated
from cluster.join_token import JOIN_TOKEN, bearer_of, is_admitted


class OperatorsPages:
    """Of one router."""

    def __init__(self, *, has_strangers: bool = False, tokens: tuple[str, ...] = ()) -> None:
        """`has_strangers`: whoever shows nothing sees nothing. `tokens`: the fleet's; empty: it has
        none, and then nobody sees anything there."""
        self._is_shut = has_strangers
        self._tokens = tokens

    def are_open_to(self, authorization: str | None) -> bool:
        """`authorization`: the header's value, "Bearer TOKEN"."""
        return not self._is_shut or is_admitted(bearer_of(authorization), self._tokens)

    def check(self, authorization: str | None) -> None:
        """Raises Unauthenticated."""
        if not self.are_open_to(authorization):
            raise Unauthenticated(
                f"what is counted here is for operators: show {JOIN_TOKEN} as a bearer token, or "
                "ask at --fleet-metrics-port"
            )
