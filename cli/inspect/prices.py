"""What an hour of a worker costs, by pool: dollars, or whatever is counted in."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping

import typer

from cli.fleet_address import PRICE_VARIABLE

_POOL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""A pool's name, as labels of Kubernetes have it; a pool without one has its role's."""
_MAX_PER_HOUR = 1e6


def prices_of(said: str | None, environ: Mapping[str, str] = os.environ) -> dict[str, float]:
    """By pool, of `prefill=2.5,h100=2.5`: of the flag, else of the variable, which is also
    where a context's is found; a pool that is not named has none. Raises typer.BadParameter."""
    source = "--price" if said is not None else PRICE_VARIABLE
    words = said if said is not None else environ.get(PRICE_VARIABLE, "")
    prices: dict[str, float] = {}
    for word in filter(None, map(str.strip, words.split(","))):
        pool, _, number = word.partition("=")
        if _POOL.fullmatch(pool) is None:
            raise typer.BadParameter(
                f"{word!r} names no pool; such as prefill=2.5,decode=2.5, per worker and hour",
                param_hint=source,
            )
        prices[pool] = _checked(number, word, source)
    return prices


def _checked(number: str, word: str, source: str) -> float:
    try:
        price = float(number)
    except ValueError:
        price = math.nan
    if not 0 <= price <= _MAX_PER_HOUR:
        raise typer.BadParameter(
            f"{word!r} is no price; a number from 0 to {_MAX_PER_HOUR:.0f}, per worker and hour",
            param_hint=source,
        )
    return price
