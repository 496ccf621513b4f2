"""A choice's tokens become text once, in order, and end once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.generation import FinishReason, GeneratedToken
from router.text.choice import MAX_DELTA_LOGPROBS, ChoiceText, TextDelta
from router.text.choice_count import ChoiceCount
from router.text.logprobs import score
from router.text.stop_strings import StopAutomaton
from tests.router.front_fakes import EOS, ByteStream, ByteTokenizer

SPECIAL = [GeneratedToken(EOS, -1.0)]
"""It has no text."""


def tokens(data: bytes) -> list[GeneratedToken]:
    return [GeneratedToken(byte, -1.0) for byte in data]


class Choice(ChoiceText):
    """With its source: what is pushed was counted before, and nothing follows a stop."""

    def __init__(self, stops: Sequence[str], *, min_tokens: int, stream: ByteStream) -> None:
        self.count = ChoiceCount()
        self.stops_heard = 0
        self.count.listen(self._hear)
        super().__init__(
            0,
            self.count,
            stream,
            StopAutomaton(stops),
            min_tokens=min_tokens,
            keep_tokens=True,
        )

    def push(
        self, tokens: Sequence[GeneratedToken], reason: FinishReason | None
    ) -> Iterable[TextDelta]:
        if not self.stops_heard:
            self.count.gave(len(tokens))
        return super().push(tokens, reason)

    def told(
        self, tokens: Sequence[GeneratedToken], reason: FinishReason | None
    ) -> TextDelta | None:
        """Where there is one delta at most."""
        deltas = list(self.push(tokens, reason))
        assert len(deltas) <= 1
        return deltas[0] if deltas else None

    def _hear(self) -> None:
        self.stops_heard += 1


def choice(*stops: str, min_tokens: int = 0, stream: ByteStream | None = None) -> Choice:
    return Choice(stops, min_tokens=min_tokens, stream=stream or ByteStream())


def run(owner: Choice, steps: list[list[GeneratedToken]]) -> list[TextDelta]:
    """All deltas, the engine ending by length after the last step."""
    last = len(steps) - 1
    return [
        delta
        for i, step in enumerate(steps)
        for delta in owner.push(step, FinishReason.LENGTH if i == last else None)
    ]


@settings(max_examples=300, deadline=None)
@given(
    st.text(alphabet="aé😀", max_size=12),
    st.lists(st.text(alphabet="aé😀", min_size=1, max_size=3), max_size=2),
    st.lists(st.integers(0, 48), max_size=6),
)
def test_any_cut_of_the_tokens_gives_the_same_text_tokens_and_end(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    every = tokens(text.encode())
    edges = sorted({0, len(every), *(min(cut, len(every)) for cut in cuts)})
    steps = [every[a:b] for a, b in zip(edges, edges[1:], strict=False)] or [[]]
    whole, cut = choice(*stops), choice(*stops)
    expected, got = run(whole, [every]), run(cut, steps)
    assert "".join(d.text for d in got) == "".join(d.text for d in expected)
    assert cut.finish_reason == whole.finish_reason
    assert cut.count.num_tokens == whole.count.num_tokens
    flat = [[shown for delta in deltas for shown in delta.tokens] for deltas in (got, expected)]
    assert flat[0] == flat[1]


UNITS = [b"a", b"b", "é".encode(), b"\xf0", "😀".encode(), None]
"""None: a token without text."""


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from(UNITS), max_size=16),
    st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=2),
    st.lists(st.integers(0, 64), max_size=6),
    st.sampled_from([1, 3, 256]),
)
def test_however_tokens_come_each_comes_out_once_with_its_text_in_small_deltas(
    units: list[bytes | None], stops: list[str], cuts: list[int], most: int
) -> None:
    every = [each for unit in units for each in (SPECIAL if unit is None else tokens(unit))]
    edges = sorted({0, len(every), *(min(cut, len(every)) for cut in cuts)})
    steps = [every[a:b] for a, b in zip(edges, edges[1:], strict=False)] or [[]]
    whole, cut = choice(*stops), choice(*stops)
    (expected,) = run(whole, [every])
    with patch("router.text.choice.MAX_DELTA_LOGPROBS", most):
        got = run(cut, steps)
    assert [shown for delta in got for shown in delta.tokens] == list(expected.tokens)
    assert "".join(delta.text for delta in got) == expected.text
    assert [delta.finish_reason for delta in got][:-1] == [None] * (len(got) - 1)
    assert (got[-1].finish_reason, got[-1].num_tokens) == (
        expected.finish_reason,
        expected.num_tokens,
    )
    assert all(len(delta.tokens) <= most for delta in got)
    assert_paired(got)


def assert_paired(deltas: Sequence[TextDelta]) -> None:
    """No token that is shown comes before the first character of its text."""
    told_chars = 0
    for delta in deltas:
        told_chars += len(delta.text)
        assert all(each.text_offset_chars <= told_chars for each in delta.tokens if each.shown)


def test_tokens_without_text_are_handed_on_at_once() -> None:
    owner = choice("END")
    for num_tokens in range(1, 50):
        delta = owner.told(SPECIAL, None)
        assert delta is not None
        assert (delta.text, len(delta.tokens), delta.num_tokens) == ("", 1, num_tokens)
        assert delta.tokens[0].shown


def test_a_token_without_text_waits_for_the_text_that_a_stop_string_holds_back() -> None:
    owner = choice("END")
    assert owner.told([*tokens(b"E"), *SPECIAL], None) is None
    delta = owner.told(tokens(b"x"), None)
    assert delta is not None
    assert (delta.text, [t.text_offset_chars for t in delta.tokens]) == ("Ex", [0, 1, 1])


def test_a_token_without_text_is_taken_back_with_a_stop_string_around_it_and_not_before_it() -> (
    None
):
    deltas = run(choice("END"), [[*SPECIAL, *tokens(b"E"), *SPECIAL, *tokens(b"ND")]])
    assert [[t.shown for t in delta.tokens] for delta in deltas] == [[True] + [False] * 4]


def test_half_a_character_waits_for_its_other_half() -> None:
    owner = choice()
    first, second = tokens("é".encode())
    assert owner.told([first], None) is None
    delta = owner.told([second], None)
    assert delta is not None
    assert (delta.text, len(delta.tokens)) == ("é", 2)


def test_half_a_character_with_a_word_behind_it_waits_for_no_more_than_the_character() -> None:
    class Words(ByteStream):
        def step(self, token_id: int) -> str:
            return super().step(token_id) + ("!?" if token_id == 0xA9 else "")

    owner = choice("?x", stream=Words())
    delta = owner.told(tokens("é".encode()), None)
    assert delta is not None
    assert (delta.text, [t.token.token_id for t in delta.tokens]) == ("é!", [0xC3])


def test_half_a_character_does_not_hold_tokens_without_text_back_for_ever() -> None:
    owner = choice()
    owner.told(tokens(b"\xf0"), None)
    deltas = [delta for _ in range(100) for delta in owner.push(SPECIAL, None)]
    assert sum(len(delta.tokens) for delta in deltas) > 100 - 2 * 16
    (rest,) = owner.push(tokens("\U0001f600".encode()[1:]), FinishReason.LENGTH)
    assert (rest.text, rest.num_tokens) == ("\U0001f600", 104)
    assert sum(len(delta.tokens) for delta in [*deltas, rest]) == 104


def test_however_many_are_let_go_together_a_delta_brings_few_with_their_text() -> None:
    top = tuple((65 + rank, -0.5) for rank in range(20))
    held = [GeneratedToken(97, -1.0, top)] * 200
    owner = choice("a" * 200 + "b")
    assert owner.told(held, None) is None
    deltas = list(owner.push([GeneratedToken(99, -1.0, top)], None))
    assert max(len(delta.tokens) for delta in deltas) * 21 <= MAX_DELTA_LOGPROBS
    assert all(len(delta.text) == len(delta.tokens) for delta in deltas)
    assert "".join(delta.text for delta in deltas) == "a" * 200 + "c"


def test_a_stop_string_over_several_tokens_ends_the_choice_and_its_tokens_are_taken_back() -> None:
    owner = choice("END")
    deltas = run(owner, [tokens(b"hi E"), tokens(b"N"), tokens(b"D and more")])
    assert "".join(delta.text for delta in deltas) == "hi "
    assert owner.finish_reason is FinishReason.STOP
    assert owner.stops_heard == 1
    assert owner.count.num_tokens == 6  # up to and including the D
    shown = [t for delta in deltas for t in delta.tokens if t.shown]
    assert [t.token.token_id for t in shown] == list(b"hi ")
    assert sum(len(delta.tokens) for delta in deltas) == 6


def test_nothing_comes_after_the_end() -> None:
    owner = choice("x")
    assert owner.told(tokens(b"ax"), None) is not None
    assert owner.told(tokens(b"more"), None) is None
    assert owner.told([], FinishReason.LENGTH) is None
    assert owner.count.num_tokens == 2


def test_the_token_that_ends_a_choice_counts_but_has_no_text() -> None:
    owner = choice()
    delta = owner.told([*tokens(b"ok"), GeneratedToken(EOS)], FinishReason.STOP)
    assert delta is not None
    assert (delta.text, delta.num_tokens, delta.finish_reason) == ("ok", 3, FinishReason.STOP)
    assert [t.shown for t in delta.tokens] == [True, True, False]


def test_a_stop_token_id_that_is_ordinary_text_is_not_shown() -> None:
    owner = choice()
    delta = owner.told(tokens(b"ok!"), FinishReason.STOP)
    assert delta is not None
    assert delta.text == "ok"


def test_held_text_is_shown_when_the_choice_ends_otherwise() -> None:
    owner = choice("END")
    first = owner.told(tokens(b"a EN"), None)
    last = owner.told(tokens(b""), FinishReason.LENGTH)
    assert first is not None and first.text == "a "
    assert last is not None and last.text == "EN"


def test_incomplete_bytes_at_the_end_become_a_replacement_character() -> None:
    owner = choice()
    delta = owner.told(tokens("é".encode()[:1]), FinishReason.LENGTH)
    assert delta is not None
    assert delta.text == "\ufffd"


def test_text_of_the_first_min_tokens_is_not_searched() -> None:
    owner = choice("a", min_tokens=2)
    delta = owner.told(tokens(b"aaxa"), None)
    assert delta is not None
    assert delta.text == "aax"
    assert owner.count.num_tokens == 4


def test_offsets_count_characters_of_the_text_before() -> None:
    owner = choice()
    delta = owner.told(tokens("é!".encode()), FinishReason.LENGTH)
    assert delta is not None
    scored = score(delta.tokens, ByteTokenizer())
    assert [item.text_offset_chars for item in scored] == [0, 0, 1]
    assert [item.chosen.raw for item in scored] == [b"\xc3", b"\xa9", b"!"]


def test_an_impossible_logprob_stays_a_number() -> None:
    owner = choice()
    delta = owner.told([GeneratedToken(65, float("-inf"))], FinishReason.LENGTH)
    assert delta is not None
    assert score(delta.tokens, ByteTokenizer())[0].chosen.logprob == -9999.0
