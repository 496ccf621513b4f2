"""Which sequences are drafted for, by whom, and what was guessed for the next step.

    before a plan   every sequence that decodes -> what a draft of it would be worth
    the plan        says how much of it is verified (engine/step/planning/draft_lengths.py)
    carried out     there is room for those that the plan wants
    guess           by whoever promised most they are guessed; forwards of draft models are here
    the step        verification.py: what the sampler draws is what is kept

Where rows are not alike in whatever batch they are, a draft could change a text: there are none,
but on a GPU where they were asked for by name.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered

from cluster.deadline import Clock
from cluster.engine_options import EngineOptions
from cluster.errors import ConfigError
from cluster.speculation import LookUp, SpeculationWish
from engine.contract.draft_numbers import DrafterKind
from engine.runner.draft_shapes import DraftShapes
from engine.runner.model_runner import Replica
from engine.step.batch.step_work import Span, StepWork, Wanted
from engine.step.drafters.drafter import NOTHING, Drafter, DraftProspect, StatesReader
from engine.step.drafters.drafter_taking import DrafterTaking
from engine.step.drafters.heads import HeadsDrafter
from engine.step.drafters.lookup import LookupDrafter, prompt_lookup
from engine.step.drafters.model import ModelDrafter
from engine.step.drafting.draft import MAX_DRAFT_TOKENS, Draft, MakeGuesser
from engine.step.drafting.predicted_text import TextTurns
from engine.step.meters.verified_drafts import VerifiedRows
from engine.step.placement import Placement
from engine.step.planning.draft_lengths import least_chance, speedup
from engine.step.planning.plan import SequenceKey
from engine.step.planning.step_cost import StepCost
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence

MOST_DRAFTED_STEPS = 48
"""In a row: after them one without drafts, which tells what these are compared with."""


class Speculation:
    """The drafters of one engine: of each sequence one guesses for the step that is planned."""

    def __init__(
        self, drafters: Ordered[Drafter], shapes: DraftShapes | None = None, *, clock: Clock
    ) -> None:
        """`shapes`: of steps with drafts; None: any."""
        self._drafters = drafters
        self._shapes, self._longest = shapes, MAX_DRAFT_TOKENS
        self._clock = clock
        self._takings = [DrafterTaking(drafter) for drafter in drafters]
        self._asked: list[DrafterTaking] = []
        self._priced: list[DrafterTaking] = []
        """Of those that are asked, whose guesses take time that counts."""
        self._chosen: dict[SequenceKey, Drafter] = {}
        self._cost, self._num_decodes = StepCost(), 0
        self._num_drafted = 0
        """Steps with drafts since the last one without."""

    def begin(self, cost: StepCost, num_decodes: int) -> None:
        """A step of so many decodes is planned: older guesses are forgotten, and new ones go as far
        as they might pay."""
        self._chosen.clear()
        self._cost, self._num_decodes = cost, num_decodes
        if self._shapes is not None:
            self._longest = min(MAX_DRAFT_TOKENS, self._shapes.max_draft_tokens(num_decodes))
        least = least_chance(cost, num_decodes)
        self._asked = [one for one in self._takings if one.begin(cost, num_decodes, least)]
        self._priced = [one for one in self._asked if one.has_accounts]

    def prospect(self, request: Request, sequence: Sequence) -> DraftProspect:
        """What a draft is worth, where the sequence decodes by itself."""
        if sequence.life.state is not SequenceState.DECODING or request.params.beams is not None:
            return NOTHING
        most = min(request.params.max_tokens - sequence.num_generated - 1, self._longest)
        if most <= 0 or self._num_drafted >= MOST_DRAFTED_STEPS:
            return NOTHING
        best = NOTHING
        for one in self._asked:
            began_s = self._clock() if one.has_accounts else 0.0
            found = one.drafter.prospect(request, sequence, most)
            if one.has_accounts:
                one.asking_s += self._clock() - began_s
            if found.chances and self._is_better(found, best, sequence):
                best, self._chosen[sequence.key] = found, one.drafter
        return best

    def guess(self, work: StepWork, placement: Placement) -> StepWork:
        """Of a step without prompts, once its plan is carried out: what it computes, with the
        drafts that it wants, as long as they are wanted or shorter. Runs what guesses, also for
        later steps; blocks that a shorter draft has no use for are given back."""
        drafts = self.drafts(work.wanted) if work.wanted else []
        self.settle()
        if not drafts:
            return work
        spans = list[Span]()
        for one, draft in zip(work.wanted, drafts, strict=True):
            num_tokens = len(draft.token_ids)
            if num_tokens < one.num_tokens:
                placement.keep_draft_room(one.sequence, num_tokens)
            told = draft.token_ids, draft.num_predicted, draft.drafter, draft.num_forced
            spans.append(Span(one.sequence, 1 + num_tokens, *told))
        return work.guessed(spans)

    def drafts(self, wanted: Ordered[Wanted]) -> list[Draft]:
        """As many tokens as are wanted, or fewer, in their order."""
        found: dict[SequenceKey, Draft] = {}
        for drafter in self._drafters:
            own = [one for one in wanted if self._chosen[one.sequence.key] is drafter]
            if own:
                made = zip(own, drafter.draft(own), strict=True)
                found |= {one.sequence.key: draft for one, draft in made}
        return [found[one.sequence.key] for one in wanted]

    def settle(self) -> None:
        """Drafts of a step without prompts are made: see Drafter."""
        for one in self._priced:
            one.drafter.settle()

    def take_s(self) -> float:
        """Seconds that guessing took in this step."""
        return sum(one.take_s() for one in self._priced) if self._priced else 0.0

    def note(self, verified: VerifiedRows | None, added_ms: float) -> None:
        """The step is over, and `take_s` was asked: what came of its drafts, and the ms by which it
        took longer than one without. None: it had none."""
        self._num_drafted = 0 if verified is None else self._num_drafted + 1
        if not self._priced:
            return
        plain_ms = self._cost.decodes_ms(max(1, self._num_decodes))
        if plain_ms > 0.0:
            for one in self._priced:
                one.note(verified, added_ms, plain_ms)

    @property
    def is_behind(self) -> bool:
        """The step that is planned would read for later drafts, once all tokens are known."""
        return any(one.drafter.is_behind for one in self._asked)

    @property
    def out(self) -> list[DrafterKind]:
        """Drafters that have failed too often."""
        return [drafter.kind for drafter in self._drafters if drafter.is_out]

    @property
    def states_reader(self) -> StatesReader | None:
        """None: nobody reads what steps leave."""
        readers = (one.states_reader for one in self._drafters)
        return next((one for one in readers if one is not None), None)

    def _is_better(self, one: DraftProspect, other: DraftProspect, sequence: Sequence) -> bool:
        return not other.chances or self._gain(one, sequence) > self._gain(other, sequence)

    def _gain(self, prospect: DraftProspect, sequence: Sequence) -> float:
        return speedup(
            prospect.chances,
            self._cost,
            num_decodes=self._num_decodes,
            context=sequence.num_computed,
            guess_ms=prospect.guess_ms,
        )


def speculation_of(
    replica: Replica, options: EngineOptions, make_guesser: MakeGuesser | None, *, clock: Clock
) -> tuple[Speculation | None, str | None]:
    """Or None, and in words why nothing is drafted. Raises ConfigError for what was asked for by
    name and would change texts.

    `make_guesser` replaces prompt lookup, and is not asked whether it may be.
    """
    if replica.why_no_drafts is not None:  # serving without them is what such a GPU can do
        return None, replica.why_no_drafts
    wish = options.speculation_wish
    why_not = why_none(replica, wish) if make_guesser is None else None
    if why_not is None:
        turns = TextTurns()
        lookup = LookupDrafter(make_guesser or prompt_lookup(turns), turns)
        drafters = _drafters(replica, options, lookup, clock)
        return Speculation(drafters, replica.draft_shapes, clock=clock), None
    if wish.is_by_name:
        raise ConfigError(
            f"speculation is {options.speculation}, which this engine cannot do without changing "
            f"texts: {why_not}; choose auto or off",
            param="speculation",
        )
    return None, why_not


def why_none(replica: Replica, wish: SpeculationWish) -> str | None:
    """Why nothing is drafted, in words. None: it may be, as a row of a draft has the bits of the
    step that would compute it alone, or a GPU's texts may depend on it."""
    if wish.look_up is LookUp.NEVER:
        return "--speculation off"
    if replica.num_homes > 1:
        return "its ranks have sequences of their own"
    if may_change_texts(replica, wish):
        return None
    if replica.kv.device.type != "cpu":
        return (
            "the GPU's kernels give a row other bits in another batch; --speculation ngram guesses "
            "all the same, and so do heads and a smaller model where they are named"
        )
    if not replica.loaded.has_alike_rows:
        return f"its rows differ by batch ({replica.loaded.kernels})"
    return None


def may_change_texts(replica: Replica, wish: SpeculationWish) -> bool:
    """Whether drafts were asked for on a GPU: a token may be another where two were as good as
    equally likely, as in another batch."""
    return wish.look_up is LookUp.ALWAYS and replica.kv.device.type != "cpu"


def _drafters(
    replica: Replica, options: EngineOptions, lookup: LookupDrafter, clock: Clock
) -> list[Drafter]:
    """Texts are looked up beside a model's or a head's guesses: a client's prediction, and what is
    copied."""
    drafters: list[Drafter] = [lookup]
    if replica.draft is not None:
        drafters.append(
            ModelDrafter(
                replica.draft,
                replica,
                block_size=options.block_size_tokens,
                max_batch_tokens=options.max_batch_tokens,
                clock=clock,
            )
        )
    if replica.heads is not None:
        block_size = options.block_size_tokens
        drafters.append(HeadsDrafter(replica.heads, replica, block_size=block_size, clock=clock))
    return drafters
