"""Who has signed in, by the random id in its cookie.

signed in -> seen again and again (a page that is open) -> over: IDLE_S unseen, MOST_S old, or out
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from cluster.deadline import Clock

IDLE_S = 900.0
MOST_S = 12 * 3600.0
MAX_SESSIONS = 64
"""The one that was seen last the longest ago makes room."""


@dataclass(slots=True)
class _Session:
    began_s: float
    seen_s: float


class PageSessions:
    """Of one page; a router that starts anew knows none. Digests are kept, and no id: looking one
    up tells nothing of it by the time that it takes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[bytes, _Session] = {}

    def begin(self) -> str:
        """The id of a new one."""
        if len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda each: self._sessions[each].seen_s)]
        session_id = secrets.token_urlsafe(32)
        now_s = self._clock()
        self._sessions[_digest(session_id)] = _Session(now_s, now_s)
        return session_id

    def sees(self, session_id: str) -> bool:
        """Whether it lives; if so it has been seen."""
        digest = _digest(session_id)
        session, now_s = self._sessions.get(digest), self._clock()
        if session is None:
            return False
        if now_s - session.seen_s > IDLE_S or now_s - session.began_s > MOST_S:
            del self._sessions[digest]
            return False
        session.seen_s = now_s
        return True

    def end(self, session_id: str) -> None:
        """Idempotent."""
        self._sessions.pop(_digest(session_id), None)


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()
