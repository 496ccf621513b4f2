"""What the shared store ends with where it gives no answer. No client hears of any of these."""

from __future__ import annotations


class StoreAway(Exception):
    """To whoever called: nobody has answered in time, or nobody is there. What is known here counts
    until somebody is."""

    def __init__(self, message: str, *, may_be_done: bool = False) -> None:
        super().__init__(message)
        self.may_be_done = may_be_done
        """What was asked, or part of it; False: it was not sent, or is refused."""


class StoreLate(StoreAway):
    """This call has waited as long as it may; the store may be there all the same."""


class StoreRefuses(StoreAway):
    """It is there, understands the call, and does not carry it out."""


class LinkLost(Exception):
    """The connection cannot be had, or has broken; the message says how, without a password."""
