"""How a process ended, for people."""

from __future__ import annotations

import signal


def exit_in_words(status: int) -> str:
    """Such as "exit code 1" or "signal SIGKILL", of an exit code, or of minus the signal that ended
    the process: those for real time have numbers only."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
