"""One sequence whose next token is to be masked: what is asked of the maker, and what it finds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future

import msgspec
import numpy as np
import numpy.typing as npt

from engine.sampling.grammars.constraint import Constraint, GrammarOutlook
from kernels.token_mask import WORD_BITS, TokenMask


class MaskedRow(msgspec.Struct, eq=False):
    """Asked by the engine's thread; found by the maker's, until `job` is done. A Struct, as each
    row of a step is one, made between two forward passes: 0.16 us, of a class with slots 0.34."""

    constraint: Constraint
    new: list[int]
    """Tokens of the answer behind the constraint's `num_known`; the maker empties it, and the
    constraint alone has them then."""
    draft: Sequence[int] = ()
    """Guesses behind all that was fed, none of which ends an answer: a mask behind each."""
    most_forced: int = 0
    """So many tokens at most are looked for that are sure to come; none beside a draft."""
    is_sample: bool = False
    """Its mask tells whether tokens are forced, where they are not looked for."""
    masks: Sequence[TokenMask] = ()
    """Of the next token, and behind each of `draft` or `forced`. One behind a guess that the
    grammar does not allow, or after that, is of no use."""
    forced: Sequence[int] = ()
    outlook: GrammarOutlook | None = None
    """Of one without a draft, where nothing went wrong."""
    is_forced: bool | None = None
    """Whether one token alone may come next; None: nobody has looked."""
    job: Future[float] | None = None
    """Ends with the seconds that it took, for all rows of it."""

    @property
    def is_done(self) -> bool:
        """Whether what was found may be read."""
        return self.job is not None and self.job.done()

    @property
    def is_handed_back(self) -> bool:
        """Once done: others of its job took long, and this one was not looked at; or what it
        follows is to begin again first, or is not where its tokens end yet."""
        constraint = self.constraint
        return constraint.is_spent or (not self.masks and constraint.failure is None)

    @property
    def is_whole(self) -> bool:
        """Once done: there is a mask behind each token of its draft."""
        return len(self.masks) == 1 + len(self.draft) and not self.constraint.is_spent

    def conclude(self) -> None:
        """Once made: tells the engine of one without a draft, where nothing went wrong."""
        constraint = self.constraint
        if self.draft or not self.masks or constraint.failure is not None or constraint.is_spent:
            return
        if self.is_sample:
            self.is_forced = only_token(self.masks[0].words.numpy()) is not None
        self.outlook = GrammarOutlook(constraint.num_known, self.forced, self.masks)


def any_done(rows: Iterable[MaskedRow]) -> bool:
    """Whether something was found; each job is asked once where its rows follow each other."""
    last = None
    for row in rows:
        if row.job is not last and row.is_done:
            return True
        last = row.job
    return False


def open_jobs(rows: Iterable[MaskedRow], *, watched: bool) -> list[Future[float]]:
    """That are not done, each once; with or without those of rows that are watched."""
    asked = [row for row in rows if watched or not row.constraint.is_watched]
    jobs = dict.fromkeys(row.job for row in asked if row.job is not None)
    return [job for job in jobs if not job.done()]


def only_token(mask: npt.NDArray[np.int32]) -> int | None:
    """The one that the mask allows; None: there are more, or none."""
    if np.count_nonzero(mask) != 1:
        return None
    words = np.flatnonzero(mask)
    word = int(mask[words[0]]) & 0xFFFFFFFF
    return None if word & (word - 1) else int(words[0]) * WORD_BITS + word.bit_length() - 1
