"""Where a vLLM server that nobody named may be, before anything is sent there: one that wrote
itself into a registry, or is a pod with certain labels.

    --vllm-allow private,10.1.0.0/16,gpu.example.com

A key is shown to such a one over TLS only, unless an operator says otherwise: whoever may write a
registry, or label a pod, would have it.

`private` stands for private and loopback addresses, names without a dot, and names under .svc and
.local, which a cluster gives. Names are looked up later: whoever answers for them is trusted.
"""

from __future__ import annotations

import ipaddress
import re

from cluster.errors import ConfigError
from router.vllm.server_address import VllmAddress

PRIVATE = "private"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_PRIVATE_NETWORKS: tuple[Network, ...] = (
    *map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")),
    *map(ipaddress.IPv4Network, ("100.64.0.0/10", "127.0.0.0/8")),
    *map(ipaddress.IPv6Network, ("fc00::/7", "::1/128")),
)
"""Without link-local ones: clouds tell a machine's secrets there."""
_PRIVATE_SUFFIXES = ("svc", "local")
_NAME = re.compile(r"[a-z_]([a-z0-9_-]*)(\.[a-z0-9_-]+)*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last part that makes a name an address in disguise: 0x7f.1, 2852039166."""


class AllowedHosts:
    """From an operator's words; never changes."""

    def __init__(self, text: str, *, needs_tls: bool = False) -> None:
        """`needs_tls`: they are shown a key. Raises ConfigError that names the word at fault."""
        self._needs_tls = needs_tls
        words = [word.strip().lower() for word in text.split(",") if word.strip()]
        self._is_private_allowed = PRIVATE in words
        self._networks: list[Network] = []
        self._suffixes: list[str] = []
        for word in (word for word in words if word != PRIVATE):
            self._add(word)

    def check(self, address: VllmAddress) -> None:
        """Raises ConfigError for a server that nothing may be sent to."""
        if not self.has(address.host):
            raise ConfigError(f"{address.host}: --vllm-allow has no such host", param="vllm_allow")
        self.check_scheme(address.url.partition(":")[0])

    def check_scheme(self, scheme: str) -> None:
        """Raises ConfigError where a key would be shown to whoever answers there."""
        if self._needs_tls and scheme != "https":
            raise ConfigError(
                "the key of --vllm-key-file is shown to servers that were found over https only, "
                f"and not over {scheme}: whoever writes itself there would have it; name the "
                "servers, have them answer https, or say --vllm-key-in-clear",
                param="vllm_key_in_clear",
            )

    def has(self, host: str) -> bool:
        """`host`: as in a URL, an IPv6 address without brackets."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return self._has_name(host.lower().removesuffix("."))
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        allowed = (*self._networks, *(_PRIVATE_NETWORKS if self._is_private_allowed else ()))
        return any((mapped or address) in network for network in allowed)

    def _has_name(self, name: str) -> bool:
        if _NUMBER.fullmatch(name.rpartition(".")[2]):
            return False
        if self._is_private_allowed and ("." not in name or _is_under(name, _PRIVATE_SUFFIXES)):
            return True
        return _is_under(name, self._suffixes)

    def _add(self, word: str) -> None:
        try:
            self._networks.append(ipaddress.ip_network(word))
        except ValueError:
            name = word.removeprefix(".")
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"--vllm-allow: {word!r} is not right; write {PRIVATE}, networks such as "
                    "10.1.0.0/16, or names such as gpu.example.com",
                    param="vllm_allow",
                ) from None
            self._suffixes.append(name)


def _is_under(name: str, suffixes: tuple[str, ...] | list[str]) -> bool:
    return any(name == suffix or name.endswith(f".{suffix}") for suffix in suffixes)
