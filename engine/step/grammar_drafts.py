"""What a guess is worth where an answer follows a grammar.

tokens that are forced   come first, and are sure
a guess                  goes on from there, if it begins with them and its next token may come
"""

from __future__ import annotations

from engine.contract.draft_numbers import DrafterKind
from engine.sampling.grammars.constraint import GrammarOutlook
from engine.step.drafting.draft import Draft
from engine.step.requests.sequence import Sequence


def held_to_grammar(guess: Draft | None, sequence: Sequence, most: int) -> Draft | None:
    """The draft of a sequence with a grammar, of at most so many tokens; None: nothing is to be
    verified, also where what may come is not known yet, or takes long to find out."""
    outlook, known = outlook_for_drafts(sequence), sequence.num_generated
    if outlook is None:
        return None
    forced, masks = outlook.forced_at(known)[:most], outlook.masks_at(known)
    num = len(forced)
    if guess is not None and num < len(masks) and guess.token_ids[:num] == forced:
        token_ids = guess.token_ids[num:]
        if token_ids and masks[num].allows(token_ids[0]):
            return _behind(forced, guess)
    if not forced:
        return None
    return Draft(forced, [1.0] * num, DrafterKind.GRAMMAR, num_forced=num)


def outlook_for_drafts(sequence: Sequence) -> GrammarOutlook | None:
    """What may come next, of a sequence with a grammar; None: nothing is to be drafted."""
    constraint, known = sequence.constraint, sequence.num_generated
    if constraint is None or constraint.is_watched or not constraint.may_draft:
        return None
    outlook = constraint.outlook
    if constraint.late_at == known:
        return None  # else a sequence whose walks are always late would never go on
    if constraint.failure is not None or outlook is None or not outlook.reaches(known):
        return None
    return outlook


def _behind(forced: list[int], guess: Draft) -> Draft:
    """The guess, whose first tokens are sure."""
    num = len(forced)
    sure = guess.chances[num - 1] if num else 1.0
    chances = [1.0] * num + [chance / sure for chance in guess.chances[num:]]
    return Draft(guess.token_ids, chances, guess.drafter, guess.num_predicted, num)
