"""Patterns of module names: what `re` says of them, in a time that is bounded."""

from __future__ import annotations

import random
import re

import pytest

from cluster.models.adapters.module_pattern import ModulePattern, is_plain

NAMES = [
    f"model.layers.{layer}.{module}"
    for layer in (0, 1, 11)
    for module in ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj", "mlp.gate_up_proj")
]
ATOMS = ("a", "b", "_", r"\.", ".", "1", "[ab]", "[^a]", r"[\d_]", "[a-b.]", r"\d", r"\w", "[]a]")


def random_pattern(chance: random.Random, depth: int = 0) -> str:
    """What both understand; repeats of at most one thing, so that `re` comes to an end."""
    row = ""
    for _ in range(chance.randint(0, 3)):
        kind = chance.random()
        if kind < 0.25 and depth < 2:
            options = [random_pattern(chance, depth + 1) for _ in range(chance.randint(1, 3))]
            row += f"({'|'.join(options)})"
        elif kind < 0.35:
            row += chance.choice("^$")
        else:
            row += chance.choice(ATOMS) + chance.choice(("", "", "", "*", "+"))
    return row


def test_random_patterns_fit_what_they_fit_as_regular_expressions() -> None:
    chance, num_fits = random.Random(0), 0
    for _ in range(3000):
        pattern = random_pattern(chance)
        name = "".join(chance.choices("ab_.1", k=chance.randint(0, 6)))
        expected = re.match(rf"(.*\.)?({pattern})$", name) is not None
        assert ModulePattern(pattern).fits(name) is expected, (pattern, name)
        num_fits += expected
    assert 300 < num_fits < 2700


@pytest.mark.parametrize(
    "pattern",
    ["q_proj", r".*\.q_proj", r"layers\.1\..*down_proj", "(q|v)_proj", "layers.1.mlp.down_proj"],
)
def test_patterns_as_people_write_them_fit_the_modules_that_peft_takes(pattern: str) -> None:
    expected = [name for name in NAMES if re.match(rf"(.*\.)?({pattern})$", name)]
    assert [name for name in NAMES if ModulePattern(pattern).fits(name)] == expected
    assert expected


@pytest.mark.parametrize(
    "pattern",
    [
        "([a-z_.0-9]+)+X",
        "(a*)*(b*)*c",
        "(.|.)" * 39 + "X",
        "(.*)*" * 30,
        "((((.+)+)+)+)+X",
        "(.*.*|.*)" * 20 + "X",
    ],
)
def test_what_would_try_for_ever_is_answered(pattern: str) -> None:
    for name in NAMES:
        assert ModulePattern(pattern).fits(name) is (not pattern.endswith(("X", "c")))


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "(a", "a)", "[", "[a", "[]", "*", "+a", "a**", "a*+", "a++", "^*", "\\"),
        *(r"(a)\1", r"\b", r"\Z", r"\x41", "[[a]]", "[b-a]", "[a-\\d]", "é", "[a-\U0010ffff]"),
        "(" * 9 + "a" + ")" * 9,
    ],
)
def test_what_is_none_or_is_not_supported_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="."):
        ModulePattern(pattern)


def test_a_name_is_one_and_its_dots_stand_for_any_character() -> None:
    assert is_plain("model.layers.0.mlp.up-proj") and not is_plain("a*")
    assert ModulePattern("layers.1").fits("model.layersx1")
    assert not ModulePattern("ayers.1").fits("model.layers.1")
