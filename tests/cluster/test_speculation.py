"""What --speculation asks for: read once, for whoever has the options."""

from __future__ import annotations

import pytest

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from cluster.speculation import SPECULATION_WORDS, LookUp, SpeculationWish


def wish(speculation: str) -> SpeculationWish:
    return EngineOptions(speculation=speculation).speculation_wish


def test_options_say_what_each_word_asks_for() -> None:
    looks_up = {word: wish(word).look_up for word in SPECULATION_WORDS}
    assert looks_up == {
        "auto": LookUp.WHERE_EXACT,
        "off": LookUp.NEVER,
        "ngram": LookUp.ALWAYS,
        "heads": LookUp.ALWAYS,
    }
    assert [word for word in SPECULATION_WORDS if wish(word).is_by_name] == ["ngram", "heads"]
    assert all(wish(word).source is None for word in SPECULATION_WORDS)


@pytest.mark.parametrize(
    ("speculation", "has_own", "is_asked_for"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("heads", False, True),
        ("ngram", True, False),
        ("off", True, False),
        ("org/smaller", True, False),
    ],
)
def test_the_models_own_layer_is_asked_for_by_name_or_where_there_is_one(
    speculation: str, has_own: bool, is_asked_for: bool
) -> None:
    assert wish(speculation).asks_for_own_layer(has_own=has_own) is is_asked_for


def test_all_other_texts_name_a_checkpoint_and_none_is_no_text() -> None:
    assert wish("org/smaller").source == "org/smaller"
    assert wish("org/smaller").is_by_name
    assert wish("org/smaller").look_up is LookUp.ALWAYS
    with pytest.raises(ConfigError, match="speculation is empty"):
        wish("")
