"""What became of a grammar's trial is remembered, with bounds."""

from __future__ import annotations

import asyncio

import pytest

from cluster.errors import (
    GrammarFailed,
    GrammarsUnsupported,
    InvalidRequest,
    NotReady,
    QueueFull,
    SplitserveError,
)
from cluster.grammar import Grammar, GrammarKind
from cluster.process.background import cancel
from cluster.sampling import SamplingParams
from router.front import grammar_checks
from router.front.caller import NOBODY, Caller
from router.front.generation_request import GenerationRequest, TextPrompt, Wishes
from router.front.grammar_checks import GrammarChecks
from router.front.pipeline import CompletionPipeline
from router.tenants.tenant import Tenant
from router.text_worker.in_process import InProcessText
from tests.engine.step.engine_scenario import VirtualClock
from tests.router.dispatch_bench import time_limits
from tests.router.front_fakes import FakeSource, byte_model, says

FINE, WRONG = Grammar("fine", GrammarKind.LARK), Grammar("wrong", GrammarKind.LARK)


class Trials(InProcessText):
    """Answers as it is told, when it is told."""

    def __init__(self) -> None:
        super().__init__(byte_model())
        self.asked: list[str] = []
        self.of: dict[str, asyncio.Event] = {}
        """By address: until when its trials wait as well."""
        self.full: set[str] = set()
        """Addresses that have too much in line."""
        self.num_running = 0
        self.errors: dict[str, SplitserveError] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def try_grammar(self, grammar: Grammar, caller: Caller = NOBODY) -> None:
        self.asked.append(grammar.text)
        self.num_running += 1
        try:
            if caller.address in self.full:
                raise QueueFull("too many")
            await self.may_answer.wait()
            if caller.address in self.of:
                await self.of[caller.address].wait()
        finally:
            self.num_running -= 1
        if (error := self.errors.get(grammar.text)) is not None:
            raise error


async def test_a_grammar_is_tried_out_once() -> None:
    trials, refusals = Trials(), list[str]()
    trials.errors["wrong"] = InvalidRequest("no such rule", param="grammar")
    checks = GrammarChecks(trials, refusals.append)
    for _ in range(3):
        await checks.check(FINE, NOBODY)
        with pytest.raises(InvalidRequest, match="no such rule") as refused:
            await checks.check(WRONG, NOBODY)
        assert refused.value.param == "grammar"
    assert trials.asked == ["fine", "wrong"] and refusals == ["invalid"] * 3


async def test_those_who_come_meanwhile_wait_for_the_same_trial() -> None:
    trials = Trials()
    trials.may_answer.clear()
    checks = GrammarChecks(trials, lambda reason: None)
    waiting = [asyncio.ensure_future(checks.check(FINE, NOBODY)) for _ in range(4)]
    while not trials.asked:
        await asyncio.sleep(0)
    waiting[0].cancel()
    trials.may_answer.set()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(done[0], asyncio.CancelledError) and done[1:] == [None] * 3
    assert trials.asked == ["fine"]


async def test_what_nobody_knows_is_tried_again() -> None:
    trials, refusals = Trials(), list[str]()
    trials.errors["fine"] = NotReady("in no time")
    checks = GrammarChecks(trials, refusals.append)
    with pytest.raises(NotReady):
        await checks.check(FINE, NOBODY)
    trials.errors = {"wrong": GrammarFailed("too slow")}
    await checks.check(FINE, NOBODY)
    with pytest.raises(GrammarFailed):
        await checks.check(WRONG, NOBODY)
    assert trials.asked == ["fine", "fine", "wrong"] and refusals == ["untried", "costly"]


async def test_so_many_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_checks, "MAX_REMEMBERED", 2)
    trials = Trials()
    checks = GrammarChecks(trials, lambda reason: None)
    for text in ("a", "b", "a", "c", "a", "b"):
        await checks.check(Grammar(text, GrammarKind.LARK), NOBODY)
    assert trials.asked == ["a", "b", "c", "b"]


async def test_a_tenant_with_ever_new_grammars_pushes_out_its_own_verdicts_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammar_checks, "MAX_REMEMBERED", 6)
    trials = Trials()
    trials.errors["wrong"] = GrammarFailed("too slow")
    checks = GrammarChecks(trials, lambda reason: None)

    async def ask_for_both() -> None:
        await checks.check(FINE.owned_by("a"), NOBODY)
        with pytest.raises(GrammarFailed):
            await checks.check(WRONG.owned_by("a"), NOBODY)

    await ask_for_both()
    for number in range(100):
        await checks.check(Grammar(str(number), GrammarKind.REGEX).owned_by("b"), NOBODY)
    asked_before = len(trials.asked)
    await ask_for_both()
    for number in range(96, 100):
        await checks.check(Grammar(str(number), GrammarKind.REGEX).owned_by("b"), NOBODY)
    assert len(trials.asked) == asked_before == 102
    await checks.check(Grammar("95", GrammarKind.REGEX).owned_by("b"), NOBODY)
    assert trials.asked[-1] == "95"


async def test_a_trial_that_nobody_waits_for_any_more_is_given_up() -> None:
    trials = Trials()
    trials.may_answer.clear()
    checks = GrammarChecks(trials, lambda reason: None)
    waiting = [asyncio.ensure_future(checks.check(FINE, NOBODY)) for _ in range(2)]
    while not trials.asked:
        await asyncio.sleep(0)
    await cancel(waiting[:1])
    assert trials.num_running == 1
    await cancel(waiting[1:])
    newcomer = asyncio.ensure_future(checks.check(FINE, NOBODY))
    while len(trials.asked) < 2:
        await asyncio.sleep(0)
    assert trials.num_running == 1
    trials.may_answer.set()
    await newcomer
    assert trials.asked == ["fine", "fine"] and trials.num_running == 0


async def test_a_refusal_names_the_kind_and_the_field_of_whoever_asks() -> None:
    trials = Trials()
    trials.errors["wrong"] = InvalidRequest("no such rule", param="grammar")
    checks = GrammarChecks(trials, lambda reason: None)
    for param in ("structured_outputs.grammar", "response_format", None):
        with pytest.raises(InvalidRequest) as refused:
            await checks.check(Grammar("wrong", GrammarKind.LARK, param), NOBODY)
        assert refused.value.param == (param or "grammar")
    with pytest.raises(InvalidRequest):
        await checks.check(Grammar("wrong", GrammarKind.STRUCTURAL_TAG), NOBODY)
    assert trials.asked == ["wrong", "wrong"]


async def test_a_model_that_follows_no_grammar_is_asked_once() -> None:
    trials, refusals = Trials(), list[str]()
    trials.errors["fine"] = GrammarsUnsupported("its tokenizer has no such thing")
    checks = GrammarChecks(trials, refusals.append)
    for text in ("fine", "other", "fine"):
        with pytest.raises(GrammarsUnsupported, match="tokenizer") as refused:
            await checks.check(Grammar(text, GrammarKind.LARK, "response_format"), NOBODY)
        assert refused.value.param == "response_format"
    assert trials.asked == ["fine"] and refusals == ["unsupported"] * 3


A, B = Caller("10.0.0.1", "10.0.0.1 1"), Caller("10.0.0.2", "10.0.0.2 1")


async def asked_by(trials: Trials, checks: GrammarChecks, caller: Caller) -> asyncio.Task[None]:
    """Once its trial is in line."""
    num_asked = len(trials.asked)
    task = asyncio.ensure_future(checks.check(FINE, caller))
    while len(trials.asked) == num_asked:
        await asyncio.sleep(0)
    return task


async def test_an_address_does_not_stand_in_line_where_another_has_put_the_same_grammar() -> None:
    trials = Trials()
    trials.of[A.address] = asyncio.Event()  # far back in its line
    checks = GrammarChecks(trials, lambda reason: None)
    first = await asked_by(trials, checks, A)
    await checks.check(FINE, B)
    await first
    assert trials.asked == ["fine", "fine"]
    while trials.num_running:  # the other left its line
        await asyncio.sleep(0)
    await checks.check(FINE, A)
    assert trials.asked == ["fine", "fine"]


async def test_nobody_is_told_that_another_address_has_too_much_in_line() -> None:
    trials, refusals = Trials(), list[str]()
    trials.full.add(A.address)
    trials.may_answer.clear()
    checks = GrammarChecks(trials, refusals.append)
    other = await asked_by(trials, checks, B)
    with pytest.raises(QueueFull):
        await checks.check(FINE, A)
    trials.may_answer.set()
    await other
    await checks.check(FINE, A)
    assert refusals == ["untried"] and trials.asked == ["fine", "fine"]


async def test_a_refusal_is_every_address_s() -> None:
    trials, refusals = Trials(), list[str]()
    trials.errors["fine"] = InvalidRequest("no such rule", param="grammar")
    trials.may_answer.clear()
    trials.of[A.address] = asyncio.Event()
    checks = GrammarChecks(trials, refusals.append)
    tasks = [await asked_by(trials, checks, each) for each in (A, B)]
    trials.may_answer.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, InvalidRequest) for each in found) and refusals == ["invalid"] * 2


async def test_an_address_that_leaves_gives_up_its_own_trial_alone() -> None:
    trials = Trials()
    trials.may_answer.clear()
    checks = GrammarChecks(trials, lambda reason: None)
    first, second = [await asked_by(trials, checks, each) for each in (A, B)]
    await cancel([first])
    while trials.num_running > 1:
        await asyncio.sleep(0)
    trials.may_answer.set()
    await second
    assert trials.num_running == 0 and checks._trials == {}


@pytest.mark.parametrize(
    ("error", "is_for_good"),
    [
        (GrammarFailed("too slow"), False),
        (GrammarsUnsupported("none"), False),
        (InvalidRequest("wrong"), True),
    ],
)
async def test_what_a_busy_machine_may_have_done_is_remembered_for_minutes(
    error: InvalidRequest, is_for_good: bool
) -> None:
    trials, clock = Trials(), VirtualClock()
    trials.errors["fine"] = error
    checks = GrammarChecks(trials, lambda reason: None, clock=clock)
    for _ in range(2):
        with pytest.raises(type(error)):
            await checks.check(FINE, NOBODY)
        clock.now_s += grammar_checks.COSTLY_S / 2 - 1.0
    assert len(trials.asked) == 1
    trials.errors.clear()
    clock.now_s += 3.0
    if is_for_good:
        with pytest.raises(InvalidRequest):
            await checks.check(FINE, NOBODY)
    else:
        await checks.check(FINE, NOBODY)


async def test_how_soon_a_verdict_comes_tells_no_tenant_what_another_has_asked_for() -> None:
    trials = Trials()
    checks = GrammarChecks(trials, lambda reason: None)
    for tenant in ("a", "b", "a", "b"):
        await checks.check(FINE.owned_by(tenant), NOBODY)
    assert trials.asked == ["fine", "fine"]
    pipeline = CompletionPipeline(byte_model(), FakeSource(says("x")), trials)
    for tenant in ("a", "b", "a", "b"):
        wishes = Wishes(sampling=SamplingParams(max_tokens=2, grammar=WRONG), max_tokens=2)
        wanted = GenerationRequest(
            request_id="r",
            tenant=Tenant(name=tenant),
            prompt=TextPrompt("Hi"),
            wishes=wishes,
            limits=time_limits(30.0),
        )
        grammar = (await pipeline.prepare(wanted)).routed.sampling.grammar
        assert grammar == WRONG.owned_by(tenant)
    assert trials.asked[2:] == ["wrong", "wrong"]
