"""Needles lie where their cell says, and a cell counts when its code is said."""

from __future__ import annotations

import pytest

from engine.offline.quality.needle import DEPTHS, Cell, cells, recall
from tests.engine.offline.quality.word_subject import WordSubject


def test_cells_are_all_lengths_with_all_depths_and_the_same_every_time() -> None:
    asked = cells([256, 512])
    assert [(c.num_tokens, c.depth) for c in asked] == [(n, d) for n in (256, 512) for d in DEPTHS]
    assert asked == cells([256, 512])
    assert len({c.code for c in asked}) == len(asked)


def test_a_prompt_has_its_length_and_its_needle_at_its_depth() -> None:
    subject = WordSubject()
    recall(subject, [600])
    for cell, prompt in zip(cells([600]), subject.prompts, strict=True):
        assert len(prompt) == 600
        text = subject.tokenizer.decode(prompt)
        before = text.index(cell.code) / len(text)
        assert before == pytest.approx(cell.depth, abs=0.12)
        assert text.count(cell.code) == 1
        assert text.endswith(f"The code of the {cell.subject} is")


def test_a_needle_is_found_when_its_code_is_said() -> None:
    asked = cells([256])

    def answer(prompt: str) -> str:
        knows = [c for c in asked if c.depth < 0.6 and c.code in prompt]
        return f" {knows[0].code}." if knows else " unknown."

    found = recall(WordSubject(answer=answer), [256])
    assert found == {cell: cell.depth < 0.6 for cell in asked}
    assert isinstance(next(iter(found)), Cell)
