"""Who asks, as the server knows it. A client says only its key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tenant:
    """Of one request."""

    name: str = ""
    """Tenants share the queue fairly, and no prefix cache; empty where no key is asked for."""
    models: tuple[str, ...] = ()
    """Names that it may ask for; empty: all."""

    def may_ask(self, model: str) -> bool:
        """True where its key is good for this model."""
        return not self.models or model in self.models


ANYBODY = Tenant()
