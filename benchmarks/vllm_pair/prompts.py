"""Prompts with facts of their own: whoever is told another prompt's has read another's blocks."""

from __future__ import annotations

import random
import re

_SYLLABLES = ("ba", "du", "ke", "li", "mo", "nu", "po", "ra", "si", "tu", "ve", "zo")
_MADE_UP = re.compile(f"(?:{'|'.join(s.capitalize() for s in _SYLLABLES)})[a-z]+")
_THINGS = ("a kite", "nine pears", "the red boat", "an old map", "two drums", "a glass key")
_FACT_COUNT = 10
"""Some 200 tokens: one block that is full, and one that is not."""
_PREFIX_FACT_COUNT = 16
"""Some 300 tokens: two full blocks."""


def facts(name: str, num_facts: int = _FACT_COUNT) -> str:
    """The same for the same name, of people and towns that another name's facts do not have."""
    draw = random.Random(name)
    return " ".join(
        f"{_made_up(draw)} took {draw.choice(_THINGS)} to {_made_up(draw)} "
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


def people_and_towns(text: str) -> set[str]:
    """Those of `facts` that a text names in full."""
    return {word for word in _MADE_UP.findall(text) if len(word) == _LENGTH}


_LENGTH = 8


def _made_up(draw: random.Random) -> str:
    return "".join(draw.choices(_SYLLABLES, k=_LENGTH // 2)).capitalize()
