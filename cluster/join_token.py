"""The secret that the processes of one fleet share.

    serve       takes the variable's, or the home folder's, which it makes once; children inherit it
    processes   take the variable's; without one they ask nobody for a token
    operators   take the variable's, or the home folder's

While it is changed, a second one is let in as well (JOIN_TOKEN_TOO): the next one, then the last.

Every call between processes of ours carries it (cluster/rpc.py), and whoever is called asks for it
(cluster/join_guard.py); operators show it at a router's HTTP ports as well. It says that a caller
belongs to the fleet; it does not hide what is said.
"""

from __future__ import annotations

import hmac
import os
import secrets
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cluster.errors import ConfigError
from cluster.home import default_home

JOIN_TOKEN = "SPLITSERVE_JOIN_TOKEN"
JOIN_TOKEN_TOO = "SPLITSERVE_JOIN_TOKEN_TOO"
"""Never shown to anybody."""
MIN_CHARS = 16
MIN_DIFFERENT_CHARS = 8
"""What is typed by hand repeats itself ("passwordpassword" has 7); of 32 random hexadecimal digits
less than one in 10^7 has fewer. gRPC ports bound no guesses."""
JOIN_TOKEN_FILE = "join-token"
"""In the home folder."""
_BYTES = 32
_SCHEME = "bearer"
_REMEDY = "make one with: openssl rand -hex 32"


def own_token() -> str | None:
    """Of this process, as its surroundings gave it. Raises ConfigError for one that is too short,
    easily guessed, or cannot be sent."""
    token = os.environ.get(JOIN_TOKEN)
    return checked_token(token, JOIN_TOKEN) if token else None


def admitted_tokens() -> tuple[str, ...]:
    """What a caller of this process may show, its own first; empty: callers are asked for none.
    Raises ConfigError as `own_token`, and for a second one without a first."""
    own, other = own_token(), os.environ.get(JOIN_TOKEN_TOO)
    if not other:
        return () if own is None else (own,)
    if own is None:
        raise ConfigError(
            f"{JOIN_TOKEN_TOO} is set and {JOIN_TOKEN} is not, so that none is asked for"
        )
    return own, checked_token(other, JOIN_TOKEN_TOO)


def is_admitted(shown: str | bytes, tokens: Iterable[str]) -> bool:
    """True for one of them. Each is compared, in a time that tells nothing."""
    told = shown.encode(errors="replace") if isinstance(shown, str) else shown
    return any([hmac.compare_digest(told, token.encode()) for token in tokens])


def bearer_of(authorization: str | None) -> str:
    """What an HTTP header `Authorization: Bearer SECRET` shows, a join token or a client's key;
    empty where there is none, or one of another scheme. The scheme may be in any case."""
    scheme, _, secret = (authorization or "").strip().partition(" ")
    return secret.strip() if scheme.lower() == _SCHEME else ""


def operators_token() -> str | None:
    """Of whoever sits at this machine: this user's fleets have it. Raises ConfigError."""
    return own_token() or _kept(default_home() / JOIN_TOKEN_FILE)


def fleets_token() -> str:
    """Of a fleet that is started here: that of its surroundings, else the one in the home folder,
    which is made where there is none. Raises ConfigError."""
    return operators_token() or _made(default_home() / JOIN_TOKEN_FILE)


def checked_token(token: str, source: str) -> str:
    """Raises ConfigError, which does not repeat the token."""
    if len(token) < MIN_CHARS:
        raise ConfigError(
            f"{source} has {len(token)} characters; allowed: {MIN_CHARS} or more; {_REMEDY}"
        )
    if (num_different := len(set(token))) < MIN_DIFFERENT_CHARS:
        raise ConfigError(
            f"{source} has {num_different} different characters; "
            f"allowed: {MIN_DIFFERENT_CHARS} or more; {_REMEDY}"
        )
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{source} has other characters than printable ASCII without spaces")
    return token


def _kept(path: Path) -> str | None:
    try:
        return checked_token(path.read_text(encoding="ascii").strip(), str(path))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"{path} cannot be read as a join token: {cause}") from cause


def _made(path: Path) -> str:
    """Of two that make it at once, the first."""
    token = secrets.token_urlsafe(_BYTES)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{JOIN_TOKEN_FILE}-"
        ) as file:
            file.write(token + "\n")
            file.flush()
            os.link(file.name, path)
    except FileExistsError:
        return _kept(path) or token
    except OSError as cause:
        raise ConfigError(
            f"{path} cannot be written: {cause.strerror}; set {JOIN_TOKEN} instead"
        ) from cause
    return token
