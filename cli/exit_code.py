"""What a command's end means to the script that called it."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The same for every command."""

    OK = 0
    FAILED = 1
    """A check failed, or the command's work did."""
    USAGE = 2
    """A wrong flag, option or variable."""
    UNREACHABLE = 3
    """The cluster does not answer."""
    REFUSED = 4
    """What was asked for may not be, and nothing was changed."""
    INTERRUPTED = 130
    """Ctrl-C."""
