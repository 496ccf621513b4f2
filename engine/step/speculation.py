"""Which sequences are drafted for, and what was guessed for the next step.

    before a plan   every sequence that decodes -> its drafter's guess, with chances
    the plan        says how much of it is verified (engine/step/planning/draft_lengths.py)
    the step        verification.py: what the sampler draws is what is kept

Where rows are not alike in whatever batch they are, a draft could change a text: there are none.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from engine.runner.model_runner import LaunchingRunner, Replica
from engine.step.drafting.drafter import MAX_DRAFT_TOKENS, Draft, MakeDrafter
from engine.step.drafting.hit_rates import SharedRates
from engine.step.drafting.prompt_lookup import PromptLookup
from engine.step.grammar_drafts import held_to_grammar
from engine.step.planning.draft_lengths import least_chance
from engine.step.planning.plan import SequenceKey
from engine.step.planning.step_cost import StepCost
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence

_NONE: Ordered[float] = ()


class Speculation:
    """The guesses of one engine: at most one for each sequence, of the step that is planned."""

    def __init__(self, make_drafter: MakeDrafter) -> None:
        self._make = make_drafter
        self._guesses: dict[SequenceKey, Draft] = {}
        self._least = 0.0

    def begin(self, cost: StepCost, num_decodes: int) -> None:
        """A step of so many decodes is planned: older guesses are forgotten, and new ones go as far
        as they might pay."""
        self._guesses.clear()
        self._least = least_chance(cost, num_decodes)

    def chances(self, request: Request, sequence: Sequence) -> Ordered[float]:
        """Guesses what comes next, where the sequence decodes: how likely each token is kept."""
        if sequence.life.state is not SequenceState.DECODING:
            return _NONE
        most = request.params.max_tokens - sequence.num_generated - 1
        if most <= 0:
            return _NONE
        drafter = sequence.drafter
        if drafter is None:
            drafter = self._make(sequence.num_prompt, request.body.prediction)
            sequence.drafter = drafter
        guess = drafter.guess(sequence.token_ids, min(most, MAX_DRAFT_TOKENS), self._least)
        if request.grammar is not None:
            guess = held_to_grammar(guess, sequence, min(most, MAX_DRAFT_TOKENS))
        if guess is None:
            return _NONE
        self._guesses[sequence.key] = guess
        return guess.chances

    def draft(self, key: SequenceKey, num_tokens: int) -> Draft:
        """The first tokens of the guess that was made for it."""
        guess = self._guesses[key]
        return Draft(
            guess.token_ids[:num_tokens],
            guess.chances[:num_tokens],
            min(guess.num_predicted, num_tokens),
        )


def speculation_of(
    replica: Replica, options: EngineOptions, make_drafter: MakeDrafter | None
) -> Speculation | None:
    """None: nothing is drafted. Raises ConfigError for what was asked for by name and cannot be.

    `make_drafter` replaces prompt lookup, and is not asked whether it may be.
    """
    if make_drafter is not None:
        return Speculation(make_drafter)
    why_not = why_none(replica, options)
    if why_not is None:
        return Speculation(prompt_lookup())
    if options.speculation == "ngram":
        raise ConfigError(
            f"speculation is ngram, which this engine cannot do without changing texts: {why_not}; "
            "choose auto or off",
            param="speculation",
        )
    return None


def why_none(replica: Replica, options: EngineOptions) -> str | None:
    """Why nothing is drafted, in words. None: it may be, as a row of a draft has the bits of the
    step that would compute it alone."""
    if options.speculation == "off":
        return "--speculation off"
    if isinstance(replica.runner, LaunchingRunner):
        return "its decode steps run ahead of the host, which drafts would have to wait for"
    if replica.num_homes > 1:
        return "its ranks have sequences of their own"
    if replica.kv.device.type != "cpu":
        return "the GPU's kernels give a row other bits in another batch"
    if not replica.loaded.num_native_calls:
        return f"its steps are not native ({replica.loaded.kernels}), so rows differ by batch"
    return None


def prompt_lookup() -> MakeDrafter:
    """Of one engine: how often its sequences go on as before is shared."""
    rates = SharedRates()

    def make(num_prompt: int, prediction: Ordered[int]) -> PromptLookup:
        return PromptLookup(rates, num_prompt, prediction)

    return make
