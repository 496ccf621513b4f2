"""Who asks, as the server knows it. A client says only its key."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.tenants.account import Account
from router.tenants.priority import Priority


@dataclass(frozen=True, slots=True)
class Tenant:
    """Of one request."""

    name: str = ""
    """Tenants share the queue fairly, and no prefix cache; empty where no key is asked for."""
    models: tuple[str, ...] = ()
    """Names that it may ask for; empty: all."""
    weight: float = 1.0
    """Of its share, beside those of others of its class."""
    priority: Priority = Priority.STANDARD
    account: Account | None = field(default=None, compare=False, repr=False)
    """Of its key; None: it may have as much as there is room for."""

    def may_ask(self, model: str) -> bool:
        """True where its key is good for this model."""
        return not self.models or model in self.models


ANYBODY = Tenant()


def combined_salt(tenant: str, cache_salt: str) -> str:
    """The server's tenant and the client's salt; no client salt can name another tenant."""
    if not cache_salt and ":" not in tenant:
        return tenant
    return f"{len(tenant)}:{tenant}:{cache_salt}"
