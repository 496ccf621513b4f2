"""What the shared store ends with where it gives no answer. No client hears of any of these."""

from __future__ import annotations


class StoreAway(Exception):
    """To whoever called: nobody has answered in time, or nobody is there. What is known here counts
    until somebody is."""


class StoreLate(StoreAway):
    """This call has waited as long as it may; what it asked for may be done all the same."""


class LinkLost(Exception):
    """The connection cannot be had, or has broken; the message says how, without a password."""
