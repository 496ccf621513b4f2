"""Prompts whose answers differ: facts of which the answer has to name one."""

from __future__ import annotations

import random

_NAMES = ("Anna", "Bo", "Cem", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jin")
_THINGS = ("a kite", "nine pears", "the red boat", "an old map", "two drums", "a glass key")
_TOWNS = ("Oslo", "Lima", "Kyoto", "Accra", "Turin", "Perth")
_FACT_COUNT = 10
"""Some 140 tokens: one block that is full, and one that is not."""
_PREFIX_FACT_COUNT = 21
"""Some 290 tokens: two full blocks."""


def facts(name: str, num_facts: int = _FACT_COUNT) -> str:
    """The same for the same name, of no other."""
    draw = random.Random(name)
    return " ".join(
        f"{draw.choice(_NAMES)} took {draw.choice(_THINGS)} to {draw.choice(_TOWNS)} "
        f"on day {draw.randrange(1000)}."
        for _ in range(num_facts)
    )


def question(name: str) -> str:
    """One whose answer depends on all of its blocks."""
    return f"{facts(name)} In short, the first one is that"


def short(name: str) -> str:
    """Of one block, for who wants blocks to be used and no answer."""
    return facts(name, 2)


def shared_prefixes(name: str, num_groups: int, num_each: int) -> list[str]:
    """`num_each` prompts behind each of `num_groups` prefixes, in an order that is drawn."""
    prefixes = [facts(f"{name} {group}", _PREFIX_FACT_COUNT) for group in range(num_groups)]
    prompts = [
        f"{prefix} {facts(f'{name} {group} {number}', 1)}"
        for group, prefix in enumerate(prefixes)
        for number in range(num_each)
    ]
    random.Random(name).shuffle(prompts)
    return prompts
