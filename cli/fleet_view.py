"""What an operator sees of a running fleet: the supervisor's news in lines."""

from __future__ import annotations

import time
from pathlib import Path

from cli.fleet_address import DEFAULT_ROUTER
from cli.progress_view import ProgressView
from cluster.config import ServeOptions
from cluster.supervisor.news import (
    Loading,
    News,
    Promoted,
    Restarting,
    Serving,
    Stopping,
    Warned,
)

_QUIET_FACTS = frozenset(
    {"worker_id", "role", "model", "engine_pid", "metrics_port", "load", "state"}
)
"""Of a ready report: said elsewhere on the line, or for the log."""


class FleetView:
    """A watcher of a supervisor."""

    def __init__(self, options: ServeOptions, log_dir: Path) -> None:
        self._options = options
        self._log_dir = log_dir
        self._rows = ProgressView()
        self._rows.start()
        self._began_s = time.monotonic()
        self._starting: dict[str, list[str]] = {}
        """Warnings of processes that load: shown when ready; a failed start has its own words."""
        self._is_stopping = False
        """From then on the processes miss each other, and their warnings say nothing new."""
        self.stopping_by_choice = True

    def __call__(self, piece: News) -> None:
        match piece:
            case Loading(name, phase, fraction):
                self._starting.setdefault(name, [])
                self._rows.update(name, phase, fraction)
            case Serving():
                self._serving(piece)
            case Promoted(name):
                self._rows.say(f"{name:<12} takes a place in the fleet")
            case Restarting(failure, delay_s):
                self._starting.pop(failure.name, None)
                line = f"{failure.name} ended, {failure.how}: {failure.cause}"
                self._rows.say(f"{line}; starting it again in {delay_s:g} s")
            case Warned():
                self._warned(piece)
            case Stopping(names, grace_s):
                self._stopping(names, grace_s)

    def all_ready(self) -> None:
        """The summary: where, and what to try."""
        self._rows.close()
        for line in self._summary():
            self._rows.say(line)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        self._rows.close()

    def _serving(self, piece: Serving) -> None:
        for warning in self._starting.pop(piece.name, []):
            self._rows.say(warning)
        self._rows.finish(piece.name, _ready_line(piece))

    def _warned(self, piece: Warned) -> None:
        line = f"{piece.name}: {piece.level}: {piece.text}"
        if piece.name in self._starting:
            self._starting[piece.name].append(line)
        elif piece.level != "warning" or not self._is_stopping:
            self._rows.say(line)

    def _stopping(self, names: tuple[str, ...], grace_s: float) -> None:
        self._is_stopping = True
        if names and self.stopping_by_choice:
            who = ", ".join(names)
            self._rows.say(f"stopping {who} (at most {grace_s:g} s; Ctrl-C again to end it now)")

    def _summary(self) -> list[str]:
        router = self._options.router
        host, near = map(_reached_at, (router.host, router.workers_host))
        scheme = "http" if router.tls.tls_cert is None else "https"
        url = f"{scheme}://{host}:{router.port}"
        chat, status = "splitserve chat", "splitserve status"
        chat += "" if url == "http://127.0.0.1:8000" else f" --url {url}"
        grpc = f"{host}:{router.grpc_port}"
        fleet = f"{near}:{router.workers_port}"
        status += "" if fleet == DEFAULT_ROUTER else f" --grpc {fleet}"
        return [
            f"ready in {time.monotonic() - self._began_s:.1f} s: {url}, gRPC {grpc}",
            f"  try   {chat}",
            f"        {status}",
            f"        curl {url}/v1/models",
            f"  logs  {self._log_dir}",
        ]


def _reached_at(host: str) -> str:
    return "127.0.0.1" if host == "0.0.0.0" else host


def _ready_line(piece: Serving) -> str:
    shown = {k: v for k, v in piece.facts.items() if v and k not in _QUIET_FACTS}
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
    state = piece.facts.get("state", "ready")
    return f"{piece.name:<12} {state}  {piece.address}  pid {piece.pid}  {facts}".rstrip()
