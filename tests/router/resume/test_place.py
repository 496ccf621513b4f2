"""How far a client has read: with what it is given next that is the whole, wherever it was."""

from random import Random

import pytest

from cluster.errors import InvalidRequest
from cluster.generation import FinishReason, GeneratedToken
from router.resume.place import ReadersPlace
from router.text.choice import ChoiceText, TextDelta
from router.text.choice_count import ChoiceCount
from router.text.stop_strings import StopAutomaton
from tests.router.front_fakes import ByteStream

ANSWER = "0123456789abcdef" * 2
TEXT = "a€b😀cé STOP and more"
TOKENS = [GeneratedToken(byte, -byte / 8) for byte in TEXT.encode()]
STOPS = {"no stop string": (), "one that it reaches": ("STOP",), "one it nearly has": ("SToP",)}

Told = list[tuple[str, tuple[int, ...], FinishReason | None]]


def deltas(chance: Random, stops: tuple[str, ...]) -> list[TextDelta]:
    """The same tokens, which come together as chance has it."""
    choice = ChoiceText(0, ChoiceCount(), ByteStream(), StopAutomaton(stops), keep_tokens=True)
    found: list[TextDelta] = []
    begin = 0
    while begin < len(TOKENS):
        end = min(len(TOKENS), begin + chance.randint(1, 5))
        reason = FinishReason.LENGTH if end == len(TOKENS) else None
        choice._count.gave(end - begin)
        found += choice.push(TOKENS[begin:end], reason)
        begin = end
    return found


def told(parts: list[TextDelta]) -> tuple[str, list[tuple[int, int, bool]], list[FinishReason]]:
    """Text, tokens with their places, ends."""
    tokens = [(t.token.token_id, t.text_offset_chars, t.shown) for d in parts for t in d.tokens]
    reasons = [d.finish_reason for d in parts if d.finish_reason is not None]
    return "".join(d.text for d in parts), tokens, reasons


@pytest.mark.parametrize("stops", STOPS.values(), ids=STOPS)
def test_what_was_read_and_the_rest_are_the_whole_after_every_event(stops: tuple[str, ...]) -> None:
    whole = told(deltas(Random(0), stops))
    for seed in range(30):
        first = deltas(Random(seed), stops)
        for num_read in range(len(first) + 1):
            place = ReadersPlace.at_beginning(ANSWER, 1)
            read = [rest for each in first[:num_read] if (rest := place.rest_of(each)) is not None]
            again = ReadersPlace.parse(place.event_id)
            rests = map(again.rest_of, deltas(Random(seed + 1), stops))
            read += [rest for rest in rests if rest is not None]
            assert told(read) == whole


def test_each_choice_has_a_place_of_its_own() -> None:
    place = ReadersPlace.at_beginning(ANSWER, 3)
    place.rest_of(TextDelta(1, "word", (), None, 2))
    place.rest_of(TextDelta(2, "", (), FinishReason.STOP, 0))
    assert place.event_id == f"{ANSWER}:-,4.0,0.0e"
    assert ReadersPlace.parse(place.event_id).begun_choices == {1, 2}


@pytest.mark.parametrize(
    "event_id",
    ["", ANSWER, f"{ANSWER}:", f"{ANSWER}:1", f"{ANSWER}:-1.0", f"{ANSWER}:1.0\n", f"x{ANSWER}:-"]
    + [f"{ANSWER}:{'1.0,' * 16}1.0", f"{ANSWER}:{'9' * 10}.0", "7" * 4000],
)
def test_what_is_no_id_of_ours_is_refused(event_id: str) -> None:
    with pytest.raises(InvalidRequest, match="Last-Event-ID"):
        ReadersPlace.parse(event_id)
