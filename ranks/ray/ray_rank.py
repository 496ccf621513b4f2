"""One rank in the hands of an actor: its log and its end, as far as Ray tells them."""

from __future__ import annotations

import signal
from contextlib import suppress

from cluster.launcher.protocol import ProcessExit
from cluster.launcher.ray.hosting import Host
from cluster.launcher.ray.session import RaySession
from cluster.process.signs_of_life import SignsOfLife
from ranks.log_relay import RelayedLines
from ranks.spawner import RankEnd


class RayRank:
    """A RankProcess."""

    def __init__(self, session: RaySession, host: Host, *, rank: int, pid: int, node: str) -> None:
        """`host` has started it as `pid`."""
        self._session, self._host = session, host
        self._rank, self._pid, self._node = rank, pid, node
        self._log = RelayedLines()
        self._is_killed = False
        self._end: RankEnd | None = None
        self._news = host.actor.news.remote()

    @property
    def rank(self) -> int:
        """See RankProcess."""
        return self._rank

    @property
    def pid(self) -> int:
        """See RankProcess."""
        return self._pid

    @property
    def node(self) -> str:
        """See RankProcess."""
        return self._node

    @property
    def is_on_this_machine(self) -> bool:
        """True where its pid is one of ours."""
        return self._host.is_on_this_machine

    def poll(self) -> RankEnd | None:
        """See RankProcess."""
        if self._end is None:
            try:
                self._hear()
            except Exception as loss:  # Ray has many names for an actor, or a node, that is gone
                self._end = self._lost(loss)
            if self._end is not None:
                self._log.close()
        return self._end

    def signs_of_life(self) -> SignsOfLife | None:
        """See RankProcess."""
        return SignsOfLife.of(self._pid) if self.is_on_this_machine else None

    def kill(self) -> None:
        """See RankProcess. The actor goes with it: it may be what was stopped."""
        if self._end is None and not self._is_killed:
            self._is_killed = True
            with suppress(Exception):  # Ray itself is gone, and with it the actor
                self._host.kill_process(self._pid)
                self._host.end(self._session)

    def _hear(self) -> None:
        while self._end is None:
            ready, _ = self._session.ray.wait([self._news], timeout=0)
            if not ready:
                return
            for piece in self._session.ray.get(self._news):
                if isinstance(piece, bytes):
                    self._log.take(piece)
                elif isinstance(piece, ProcessExit):
                    self._end = RankEnd(exit_code=piece.status, last_lines=self._log.last_lines)
            self._news = self._host.actor.news.remote()

    def _lost(self, loss: Exception) -> RankEnd:
        self._host.put_down(self._pid)
        if self._is_killed:
            return RankEnd(exit_code=-signal.SIGKILL, last_lines=self._log.last_lines)
        return RankEnd(words=self._host.in_words(loss), last_lines=self._log.last_lines)
