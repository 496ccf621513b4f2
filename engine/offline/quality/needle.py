"""A needle in a haystack: a number told once in a long text, and asked for at its end.

Source: Kamradt, "Needle in a haystack", 2023. A cell is a length of the prompt and a depth.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine.offline.quality.reading import TEXT
from engine.offline.quality.subject import Subject

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
ANSWER_TOKENS = 12
SUBJECTS = ("blue locker", "garden gate", "piano room", "red suitcase", "cellar door")
QUESTION = "\n\nQuestion: What is the code of the {subject}? Answer: The code of the {subject} is"


@dataclass(frozen=True, slots=True)
class Cell:
    """One prompt."""

    num_tokens: int
    depth: float
    subject: str
    code: str

    @property
    def needle(self) -> str:
        """The sentence that is hidden."""
        return f" Remember: the code of the {self.subject} is {self.code}."


def cells(lengths: Sequence[int]) -> list[Cell]:
    """Every length with every depth; codes are the same in every run."""
    rng = random.Random(0)
    return [
        Cell(length, depth, subject, str(rng.randrange(1000, 10_000)))
        for length in lengths
        for depth, subject in zip(DEPTHS, SUBJECTS, strict=True)
    ]


def recall(subject: Subject, lengths: Sequence[int]) -> dict[Cell, bool]:
    """Which needles were found."""
    asked = cells(lengths)
    texts = subject.continuations([_prompt(subject, cell) for cell in asked], ANSWER_TOKENS)
    return {cell: cell.code in text for cell, text in zip(asked, texts, strict=True)}


def _prompt(subject: Subject, cell: Cell) -> list[int]:
    """Sentences in a shuffled order around the needle, cut to the cell's length."""
    encode = subject.tokenizer.encode
    question = encode(QUESTION.format(subject=cell.subject))
    needle = encode(cell.needle)
    room = cell.num_tokens - len(question) - len(needle)
    hay = _hay(subject, room)
    at = _sentence_end(subject, hay, int(room * cell.depth))
    return hay[:at] + needle + hay[at:] + question


def _hay(subject: Subject, num_tokens: int) -> list[int]:
    sentences = re.split(r"(?<=[.!?])\s+", TEXT.read_text())
    rng, ids = random.Random(1), list[int]()
    while len(ids) < num_tokens:
        rng.shuffle(sentences)
        ids += subject.tokenizer.encode(" ".join(sentences) + " ")
    return ids[:num_tokens]


def _sentence_end(subject: Subject, hay: list[int], near: int) -> int:
    """The first place from `near` on that follows a full stop."""
    for at in range(near, len(hay)):
        if at and subject.tokenizer.decode([hay[at - 1]]).endswith("."):
            return at
    return len(hay) if near else 0
