"""Where certificates lie, and whether they can be used: tried before they are, in memory."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ConfigError

_MAX_ROUNDS = 8
"""Of a handshake; TLS 1.3 takes two."""


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """In PEM, the key without a password."""

    chain: Path
    """Our certificate first, then those between it and its authority."""
    key: Path
    authority: Path | None = None
    """Whoever shows a certificate has it from here. None: nobody is asked for one."""


def server_context(files: CertificateFiles) -> ssl.SSLContext:
    """For whoever is connected to. Raises ConfigError naming the file at fault."""
    context = _with_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)
    if files.authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def check_among_peers(name: str) -> Callable[[CertificateFiles], ssl.SSLContext]:
    """As `server_context`, and a check that processes with these very files would take each other
    for what they are. Raises ConfigError: a certificate is expired, of another authority, or not
    good for `name`."""

    def check(files: CertificateFiles) -> ssl.SSLContext:
        server = server_context(files)
        client = _with_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)
        try:
            _shake_hands(client, server, name)
        except ssl.SSLError as fault:
            raise ConfigError(
                f"{files.chain} is of no use among the fleet: {why(fault)}"
            ) from fault
        return server

    return check


def why(fault: ssl.SSLError) -> str:
    """OpenSSL's reason, in its words."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return fault.verify_message
    reason: str | None = getattr(fault, "reason", None)  # errors of our own have none
    return (reason or str(fault)).lower().replace("_", " ")


def _with_chain(context: ssl.SSLContext, files: CertificateFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.chain, files.key, password=_no_password)
    except (OSError, ValueError) as fault:  # OpenSSL's own errors are OSErrors
        raise _unusable(f"{files.chain} with the key {files.key}", fault) from fault
    if files.authority is not None:
        try:
            context.load_verify_locations(files.authority)
        except (OSError, ValueError) as fault:
            raise _unusable(str(files.authority), fault) from fault
    return context


def _no_password() -> bytes:
    """Else the terminal is asked for one."""
    return b""


def _unusable(what: str, fault: OSError | ValueError) -> ConfigError:
    reason = why(fault) if isinstance(fault, ssl.SSLError) else str(fault)
    return ConfigError(f"{what} cannot be used for TLS: {reason}")


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Raises SSLError as either side would."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_MAX_ROUNDS):
        sides = [side for side in sides if not _is_done(side)]


def _is_done(side: ssl.SSLObject) -> bool:
    """After another step of its handshake."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
