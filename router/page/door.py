"""Who may see the page: the control plane's door, for browsers.

    join token, once, in a POST -> a cookie that no script reads, of this site alone -> NAMES
    neither, by a loopback address -> COUNTS
    neither, from elsewhere -> NOTHING
    a process without a join token asks nobody, as in the rest of its control plane -> NAMES

A browser sends what others tell it to send. So a page of another site is refused by what browsers
say of it (Origin, Sec-Fetch-Site), and a name that was made to lead here (DNS rebinding) by Host.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from cluster.deadline import Clock
from cluster.errors import NotAllowed, RateLimited, WrongToken
from cluster.join_token import is_admitted
from cluster.membership.reach import is_loopback
from router.api.http.asgi import Scope, header_of
from router.page.sessions import MOST_S, PageSessions
from router.page.sight import Sight

MAX_WRONG = 10
"""Tokens from one address within WRONG_S; then its next wrong ones are told to wait. The right one
is always taken: behind a proxy an operator shares an address with whoever guesses, and a join token
is too long to be guessed."""
WRONG_S = 60.0
MAX_ADDRESSES = 256
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via")
"""Whoever comes through a proxy is not on this machine, though its connection is."""
_SAME_SITE = (None, "same-origin", "none")


@dataclass(frozen=True, slots=True)
class DoorRules:
    """What a listener's options come to."""

    tokens: tuple[str, ...]
    """Of the fleet; empty: it has none."""
    is_on_loopback: bool
    """Only processes of this machine reach the listener."""
    cookie: str
    """Its name: cookies of one host are those of all of its ports."""


class PageDoor:
    """All calls from the event loop."""

    def __init__(self, rules: DoorRules, clock: Clock) -> None:
        self._rules = rules
        self._sessions = PageSessions(clock)
        self._wrong = WrongTokens(clock)

    @property
    def asks_for_token(self) -> bool:
        """False where there is none to sign in with."""
        return bool(self._rules.tokens)

    def check_site(self, scope: Scope) -> None:
        """Raises NotAllowed for what a page of another site has a browser ask."""
        origin, host = header_of(scope, b"origin"), header_of(scope, b"host")
        if header_of(scope, b"sec-fetch-site") not in _SAME_SITE:
            raise NotAllowed("another site's page may not ask for this one")
        if origin is not None and origin != f"{scope['scheme']}://{host}":
            raise NotAllowed("another site's page may not ask for this one")

    def sight_of(self, scope: Scope) -> Sight:
        """Asked with each request, and of a stream with each snapshot."""
        session_id = self._session_in(scope)
        if session_id is not None and self._sessions.sees(session_id):
            return Sight.NAMES
        if self._rules.is_on_loopback and not _is_from_here(scope):
            return Sight.NOTHING
        if not self._rules.tokens:
            return Sight.NAMES
        return Sight.COUNTS if self._rules.is_on_loopback else Sight.NOTHING

    def sign_in(self, scope: Scope, shown: str) -> bytes:
        """The value of Set-Cookie. Raises WrongToken, and RateLimited after too many."""
        if not is_admitted(shown, self._rules.tokens):
            address = scope["state"]["caller"].address
            self._wrong.check(address)
            self._wrong.note(address)
            raise WrongToken("this is not the join token of this fleet")
        return self._cookie(scope, self._sessions.begin(), int(MOST_S))

    def sign_out(self, scope: Scope) -> bytes:
        """The value of Set-Cookie; the session is over here as well."""
        if (session_id := self._session_in(scope)) is not None:
            self._sessions.end(session_id)
        return self._cookie(scope, "", 0)

    def _cookie(self, scope: Scope, value: str, lives_s: int) -> bytes:
        secure = "; Secure" if scope["scheme"] == "https" else ""
        kind = f"Path=/; Max-Age={lives_s}; HttpOnly; SameSite=Strict{secure}"
        return f"{self._rules.cookie}={value}; {kind}".encode()

    def _session_in(self, scope: Scope) -> str | None:
        try:
            cookies = SimpleCookie(header_of(scope, b"cookie") or "")
        except CookieError:
            return None
        found = cookies.get(self._rules.cookie)
        return found.value if found is not None and found.value else None


class WrongTokens:
    """How many each address has shown of late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raises RateLimited."""
        times = self._times.get(address)
        if times is None or len(times) < MAX_WRONG:
            return
        wait_s = times[0] + WRONG_S - self._clock()
        if wait_s > 0:
            raise RateLimited("too many wrong tokens from this address", retry_after_s=wait_s)

    def note(self, address: str) -> None:
        """One more."""
        times = self._times.setdefault(address, deque(maxlen=MAX_WRONG))
        times.append(self._clock())
        self._times.move_to_end(address)
        if len(self._times) > MAX_ADDRESSES:
            self._times.popitem(last=False)


def _is_from_here(scope: Scope) -> bool:
    """By its own word, which only a browser's user or a program of this machine can choose."""
    host = (header_of(scope, b"host") or "").rpartition(":")
    name = (host[0] if host[1] and host[2].isdigit() else "".join(host)).strip("[]")
    return is_loopback(name) and all(header_of(scope, each) is None for each in _FORWARDED)
