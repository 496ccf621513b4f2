"""A choice's tokens become text once, in order, and end once."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.generation import FinishReason, GeneratedToken
from router.text.choice import ChoiceText, TextDelta
from router.text.choice_count import ChoiceCount
from router.text.logprobs import score
from router.text.stop_strings import StopAutomaton
from tests.router.front_fakes import EOS, ByteStream, ByteTokenizer


def tokens(data: bytes) -> list[GeneratedToken]:
    return [GeneratedToken(byte, -1.0) for byte in data]


class Choice(ChoiceText):
    """With its source: what is pushed was counted before, and nothing follows a stop."""

    def __init__(self, stops: Sequence[str], *, min_tokens: int) -> None:
        self.count = ChoiceCount()
        self.stops_heard = 0
        self.count.listen(self._hear)
        super().__init__(
            0,
            self.count,
            ByteStream(),
            StopAutomaton(stops),
            min_tokens=min_tokens,
            keep_tokens=True,
        )

    def push(
        self, tokens: Sequence[GeneratedToken], reason: FinishReason | None
    ) -> TextDelta | None:
        if not self.stops_heard:
            self.count.gave(len(tokens))
        return super().push(tokens, reason)

    def _hear(self) -> None:
        self.stops_heard += 1


def choice(*stops: str, min_tokens: int = 0) -> Choice:
    return Choice(stops, min_tokens=min_tokens)


def run(owner: Choice, steps: list[list[GeneratedToken]]) -> list[TextDelta]:
    """All deltas, the engine ending by length after the last step."""
    last = len(steps) - 1
    deltas = [
        owner.push(step, FinishReason.LENGTH if i == last else None) for i, step in enumerate(steps)
    ]
    return [delta for delta in deltas if delta is not None]


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
    assert owner.push(tokens(b"ax"), None) is not None
    assert owner.push(tokens(b"more"), None) is None
    assert owner.push([], FinishReason.LENGTH) is None
    assert owner.count.num_tokens == 2


def test_the_token_that_ends_a_choice_counts_but_has_no_text() -> None:
    owner = choice()
    delta = owner.push([*tokens(b"ok"), GeneratedToken(EOS)], FinishReason.STOP)
    assert delta is not None
    assert (delta.text, delta.num_tokens, delta.finish_reason) == ("ok", 3, FinishReason.STOP)
    assert [t.shown for t in delta.tokens] == [True, True, False]


def test_a_stop_token_id_that_is_ordinary_text_is_not_shown() -> None:
    owner = choice()
    delta = owner.push(tokens(b"ok!"), FinishReason.STOP)
    assert delta is not None
    assert delta.text == "ok"


def test_held_text_is_shown_when_the_choice_ends_otherwise() -> None:
    owner = choice("END")
    first = owner.push(tokens(b"a EN"), None)
    last = owner.push(tokens(b""), FinishReason.LENGTH)
    assert first is not None and first.text == "a "
    assert last is not None and last.text == "EN"


def test_incomplete_bytes_at_the_end_become_a_replacement_character() -> None:
    owner = choice()
    delta = owner.push(tokens("é".encode()[:1]), FinishReason.LENGTH)
    assert delta is not None
    assert delta.text == "\ufffd"


def test_text_of_the_first_min_tokens_is_not_searched() -> None:
    owner = choice("a", min_tokens=2)
    delta = owner.push(tokens(b"aaxa"), None)
    assert delta is not None
    assert delta.text == "aax"
    assert owner.count.num_tokens == 4


def test_offsets_count_characters_of_the_text_before() -> None:
    owner = choice()
    delta = owner.push(tokens("é!".encode()), FinishReason.LENGTH)
    assert delta is not None
    scored = score(delta.tokens, ByteTokenizer())
    assert [item.text_offset_chars for item in scored] == [0, 0, 1]
    assert [item.chosen.raw for item in scored] == [b"\xc3", b"\xa9", b"!"]


def test_an_impossible_logprob_stays_a_number() -> None:
    owner = choice()
    delta = owner.push([GeneratedToken(65, float("-inf"))], FinishReason.LENGTH)
    assert delta is not None
    assert score(delta.tokens, ByteTokenizer())[0].chosen.logprob == -9999.0
