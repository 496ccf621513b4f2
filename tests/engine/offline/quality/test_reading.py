"""Perplexity and agreement, against sums done by hand."""

from __future__ import annotations

import math

import pytest
import torch

from engine.offline.quality import reading
from engine.offline.quality.reading import Reading, read_text
from tests.engine.offline.quality.word_subject import WordSubject

VOCAB = 2000


def uniform(token: int) -> torch.Tensor:
    return torch.zeros(VOCAB)


def test_a_model_that_knows_nothing_has_the_vocabulary_as_its_perplexity() -> None:
    result = read_text(WordSubject(predict=uniform), 300)
    assert result.perplexity == pytest.approx(VOCAB, rel=1e-4)
    assert len(result.losses) == len(result.likeliest) == 299


def test_the_loss_is_that_of_the_token_which_came() -> None:
    """Each token is sure of its successor by one id: right or wrong can be told by hand."""

    def successor(token: int) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.tensor(token + 1), VOCAB) * 5.0

    subject = WordSubject(predict=successor)
    result = read_text(subject, 100)
    (ids,) = subject.pieces
    whole = math.log(math.exp(5.0) + VOCAB - 1)
    expected = [whole - 5.0 * (b == a + 1) for a, b in zip(ids, ids[1:], strict=False)]
    assert result.losses == pytest.approx(expected, rel=1e-4)
    assert result.likeliest == [token + 1 for token in ids[:-1]]
    assert 0 < sum(b == a + 1 for a, b in zip(ids, ids[1:], strict=False)) < 99  # both kinds


def test_the_text_is_read_in_windows_that_the_context_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "WINDOW_TOKENS", 64)
    subject = WordSubject(predict=uniform, max_context_tokens=50)
    result = read_text(subject, 120)
    assert [len(piece) for piece in subject.pieces] == [50, 50, 20]
    assert len(result.losses) == 49 + 49 + 19


def test_agreement_counts_equal_choices() -> None:
    first, second = Reading([1.0] * 4, [1, 2, 3, 4]), Reading([1.0] * 4, [1, 2, 9, 9])
    assert first.agreement(second) == 0.5
    assert first.agreement(first) == 1.0
