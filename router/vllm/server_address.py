"""Which vLLM servers an operator names, and what each is for.

    --vllm http://p:8100,role=prefill,lease=30,http://d:8200,role=decode,http://a:8300

A word that is a URL begins a server; words after it, until the next URL, are its own.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from cluster.errors import ConfigError
from cluster.identity import Role

LEASE_S = 30.0
"""vLLM's own default of `kv_lease_duration`."""
MIN_LEASE_S, MAX_LEASE_S = 1.0, 3600.0
"""vLLM takes no shorter one than whole seconds; a longer one is a slip of the hand."""
MAX_SERVERS = 256
_HOST = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,252}")


class VllmRole(enum.StrEnum):
    """What a server was started for."""

    PREFILL = "prefill"
    """NixlConnector, `kv_producer`: computes prompts that others read."""
    DECODE = "decode"
    """NixlConnector, `kv_consumer`: reads prompts, or computes them itself."""
    BOTH = "both"
    """Aggregated: it does everything by itself, and reads from nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmAddress:
    """One server."""

    url: str
    """Scheme, host and port, without a path."""
    role: VllmRole = VllmRole.BOTH
    lease_s: float = LEASE_S
    """For how long it keeps what it computed for a reader that has not come: its own
    `kv_lease_duration`, which no endpoint tells."""

    is_found: bool = False
    """It wrote itself somewhere, or was found; nobody named it."""
    events_port: int | None = None
    """Of its KV events, on its own host; None: what it tells by `/kv_event_sources`."""
    replay_port: int | None = None
    """Of those of its past, where it told `events_port`."""

    @property
    def host(self) -> str:
        """A name, or an address without brackets."""
        return urlsplit(self.url).hostname or ""

    @property
    def host_port(self) -> str:
        """As members' addresses are written."""
        parts = urlsplit(self.url)
        return f"{_written(parts.hostname or '')}:{parts.port}"

    @property
    def words(self) -> str:
        """As `vllm_addresses` reads them."""
        return f"{self.url},role={self.role},lease={self.lease_s:g}"

    @property
    def worker_id(self) -> str:
        """By which the fleet knows it."""
        return f"vllm-{self.host_port}"

    @property
    def fleet_role(self) -> Role:
        """What the router asks of it."""
        return Role.PREFILL if self.role is VllmRole.PREFILL else Role.DECODE


def vllm_addresses(text: str) -> tuple[VllmAddress, ...]:
    """Raises ConfigError that names the word at fault."""
    found: list[VllmAddress] = []
    for word in filter(None, (part.strip() for part in text.split(","))):
        if "://" in word:
            found.append(VllmAddress(url=_checked_url(word)))
        elif not found:
            raise _refused(word, "a URL such as http://host:8000 comes first")
        else:
            found[-1] = _with_word(found[-1], word)
    _check_all(found)
    return tuple(found)


def _with_word(address: VllmAddress, word: str) -> VllmAddress:
    name, _, value = word.partition("=")
    if name == "role" and value in set(VllmRole):
        return replace(address, role=VllmRole(value))
    if name == "lease" and (lease_s := _seconds(value)) is not None:
        return replace(address, lease_s=lease_s)
    seconds = f"{MIN_LEASE_S:g} to {MAX_LEASE_S:g} seconds"
    raise _refused(word, f"allowed: role={'|'.join(VllmRole)}, lease={seconds}")


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if MIN_LEASE_S <= seconds <= MAX_LEASE_S else None


def _checked_url(word: str) -> str:
    try:
        parts = urlsplit(word)
        port = parts.port
    except ValueError as cause:
        raise _refused(word, str(cause)) from cause
    if parts.scheme not in ("http", "https") or not parts.hostname or not port:
        raise _refused(word, "write http://host:port or https://host:port")
    host = parts.hostname
    if not _HOST.fullmatch(host) and not _is_ipv6(host):
        raise _refused(word, "its host is no name and no address")
    if parts.path.strip("/") or parts.query or parts.username:
        raise _refused(word, "no path, query or user: the router asks for vLLM's own paths")
    return f"{parts.scheme}://{_written(host)}:{port}"


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _written(host: str) -> str:
    """As it stands before a port."""
    return f"[{host}]" if ":" in host else host


def _check_all(found: list[VllmAddress]) -> None:
    places = [address.host_port for address in found]
    twice = next((place for place in places if places.count(place) > 1), None)
    if twice is not None:
        raise _refused(twice, "it is named twice")
    if not found or len(found) > MAX_SERVERS:
        raise _refused(f"{len(found)} servers", f"1 to {MAX_SERVERS} of them")


def _refused(word: str, remedy: str) -> ConfigError:
    return ConfigError(f"--vllm: {word!r} is not right; {remedy}", param="vllm")
