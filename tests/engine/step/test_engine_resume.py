"""Answers that go on where another engine left them: the tokens are those that would have come."""

from __future__ import annotations

import pytest
from msgspec import structs

from cluster.generation import BegunChoice, FinishReason, GeneratedToken
from engine.contract.commands import (
    ChoiceToken,
    Deliver,
    Finish,
    GenerateRequest,
    PrefillLocally,
    PrefillMode,
    Seed,
    Submit,
)
from engine.offline.queue import Completion, collect, generate
from engine.process.fake_runner import FakeRunner
from engine.runner.model_runner import Replica
from engine.step.engine import Engine
from tests.engine.step.engine_scenario import (
    copy_kv,
    expected_tokens,
    request,
    run_until_ended,
    small_engine,
    small_replica,
    step,
)
from tests.manual_clock import ManualClock

PROMPT = [1, 2, 3, 4, 5]
LENGTH = 8
PENALIZED = {"frequency_penalty": 1.5, "repetition_penalty": 1.2, "logit_bias": {3: 1.0}}
WAYS: dict[str, dict[str, object]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.8, "seed": 11, "top_p": 0.9},
    "penalized": {"temperature": 0.0, **PENALIZED},
    "with logprobs": {"temperature": 0.8, "logprobs": 2},
}


def undisturbed(body: GenerateRequest) -> Completion:
    return generate(small_engine(small_replica(32)), [body])[0]


def resumed(body: GenerateRequest, begun: dict[int, list[GeneratedToken]]) -> GenerateRequest:
    """The same, from these tokens on."""
    resume = [BegunChoice(c, [token.token_id for token in given]) for c, given in begun.items()]
    return structs.replace(body, resume=resume)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("num_begun", range(LENGTH))
def test_whatever_has_come_the_rest_is_the_same(way: str, num_begun: int) -> None:
    body = request("a", PROMPT, max_tokens=LENGTH, **WAYS[way])
    whole = undisturbed(body).tokens[0]
    rest = undisturbed(resumed(body, {0: whole[:num_begun]}))
    assert rest.tokens == {0: whole[num_begun:]}
    assert rest.finish_reasons == {0: FinishReason.LENGTH}
    assert rest.ended is not None
    assert rest.ended.usage.completion_tokens == LENGTH - num_begun


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lengths", [(3, 3), (4, 1), (0, 5)])
def test_choices_that_go_on_together_have_come_unequally_far(
    way: str, lengths: tuple[int, int]
) -> None:
    body = request("a", PROMPT, max_tokens=LENGTH, n=3, **WAYS[way])
    whole = undisturbed(body).tokens
    begun = {choice: whole[choice][:count] for choice, count in zip((0, 2), lengths, strict=True)}
    rest = undisturbed(resumed(body, begun))
    assert rest.tokens == {choice: whole[choice][len(given) :] for choice, given in begun.items()}


def test_a_prompt_that_several_choices_share_is_computed_once() -> None:
    prompt = PROMPT * 4
    body = request("a", prompt, max_tokens=LENGTH, n=3)
    whole = undisturbed(body).tokens
    replica = small_replica(64)
    assert isinstance(replica.runner, FakeRunner)
    begun = {choice: tokens[:2] for choice, tokens in whole.items()}
    generate(small_engine(replica, max_batch_tokens=64), [resumed(body, begun)])
    num_decoded = 3 * (LENGTH - 3)
    assert replica.runner.num_tokens == len(prompt) + 3 * 2 + num_decoded


def export(body: GenerateRequest) -> tuple[Replica, dict[int, int], list[ChoiceToken]]:
    """The replica that has computed it, its blocks by index, and the next token."""
    replica = small_replica(16)
    engine = small_engine(replica)
    engine.apply(Submit(structs.replace(body, mode=PrefillMode.EXPORT)))
    frames = [step(engine)]
    while engine.has_work:
        frames.append(step(engine))
    spans = [item.span for frame in frames for item in frame.prefilled]
    blocks = {s.first_index + at: b for s in spans for at, b in enumerate(s.block_ids)}
    seeds = [ChoiceToken(event.choice, event.token) for f in frames for event in f.tokens]
    return replica, blocks, seeds


def receive(body: GenerateRequest) -> tuple[Replica, Engine, list[int]]:
    """An engine that waits for the blocks, its replica, and where they go."""
    replica = small_replica(16)
    engine = small_engine(replica)
    engine.apply(Submit(structs.replace(body, mode=PrefillMode.REMOTE)))
    [reserved] = step(engine).reserved
    return replica, engine, reserved.block_ids


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("num_begun", range(1, LENGTH))
def test_an_answer_is_handed_over_with_its_prompt(way: str, num_begun: int) -> None:
    body = request("a", PROMPT, max_tokens=LENGTH, n=2, **WAYS[way])
    whole = undisturbed(body).tokens[1]
    body = resumed(body, {1: whole[:num_begun]})
    source, blocks, seeds = export(body)
    replica, target, slots = receive(body)
    target.apply(Seed("a", seeds))
    if num_begun < LENGTH - 1:
        copy_kv(source.kv, replica.kv, [(blocks[i], slot) for i, slot in enumerate(slots)])
        target.apply(Deliver("a", 0, len(slots)))
    completion = run_until_ended(target, ["a"])["a"]
    assert completion.tokens == {1: whole[num_begun:]}


@pytest.mark.parametrize("num_delivered", range(3))
def test_what_nobody_hands_over_is_computed_here(num_delivered: int) -> None:
    body = request("a", PROMPT, max_tokens=LENGTH)
    whole = undisturbed(body).tokens[0]
    body = resumed(body, {0: whole[:3]})
    source, blocks, _ = export(body)
    replica, target, slots = receive(body)
    assert len(slots) == 4
    copy_kv(source.kv, replica.kv, [(blocks[i], slots[i]) for i in range(num_delivered)])
    target.apply(Deliver("a", 0, num_delivered))
    target.apply(PrefillLocally("a"))
    assert run_until_ended(target, ["a"])["a"].tokens == {0: whole[3:]}


def test_who_has_begun_goes_before_who_has_not() -> None:
    engine = small_engine(small_replica(32), max_batch_tokens=4)
    first, body = request("first", [6] * 12), request("a", PROMPT, max_tokens=LENGTH)
    begun = resumed(body, {0: undisturbed(body).tokens[0][:2]})
    for item in (first, begun):
        engine.apply(Submit(item))
    completions = {"first": Completion(), "a": Completion()}
    while not completions["a"].tokens:
        assert not completions["first"].tokens
        collect(step(engine), completions)


def test_the_end_of_a_choice_is_heard_while_it_waits_to_go_on() -> None:
    engine = small_engine(small_replica(32))
    body = request("a", PROMPT, max_tokens=LENGTH, n=2)
    whole = undisturbed(body).tokens
    engine.apply(Submit(resumed(body, {0: whole[0][:2], 1: whole[1][:2]})))
    engine.apply(Finish("a", [0]))
    assert run_until_ended(engine, ["a"])["a"].tokens == {1: whole[1][2:]}


def test_a_stop_token_ends_what_goes_on_where_it_would_have_ended() -> None:
    body = request("a", PROMPT, max_tokens=LENGTH, temperature=0.0)
    token_ids = expected_tokens(body)
    stop = next(i for i in range(3, LENGTH) if token_ids[i] not in token_ids[:i])
    body = request(
        "a", PROMPT, max_tokens=LENGTH, temperature=0.0, stop_token_ids=(token_ids[stop],)
    )
    given = [GeneratedToken(token_id) for token_id in token_ids[: stop - 1]]
    rest = undisturbed(resumed(body, {0: given}))
    assert rest.tokens[0] == [GeneratedToken(i) for i in token_ids[stop - 1 : stop + 1]]
    assert rest.finish_reasons == {0: FinishReason.STOP}


@pytest.mark.parametrize(
    ("resume", "changes"),
    [
        ([BegunChoice(0, [1] * 4)], {}),
        ([BegunChoice(1, [1])], {}),
        ([BegunChoice(0, [1]), BegunChoice(0, [1])], {"n": 2}),
        ([BegunChoice(0, [99])], {}),
        ([BegunChoice(0, [1])], {"prompt_logprobs": 0}),
        ([BegunChoice(0, [1]), BegunChoice(1, [1])], {"n": 2, "mode": PrefillMode.REMOTE}),
    ],
    ids=["complete", "no choice", "twice", "no token", "scored", "several remote"],
)
def test_what_cannot_go_on_is_refused(
    resume: list[BegunChoice], changes: dict[str, object]
) -> None:
    engine = small_engine()
    body = request("a", PROMPT, max_tokens=4, **changes)  # type: ignore[arg-type]
    engine.apply(Submit(structs.replace(body, resume=resume)))
    assert [ended.error_code for ended in step(engine).ended] == ["invalid_request"]


def test_what_a_request_took_is_told_with_its_first_tokens() -> None:
    engine = small_engine(small_replica(32), max_batch_tokens=2)
    engine.apply(Submit(request("first", PROMPT)))
    run_until_ended(engine, ["first"])
    engine.apply(Submit(request("a", PROMPT, n=2)))
    frames = [step(engine)]
    while not frames[-1].tokens:
        frames.append(step(engine))
    assert [item.request_id for frame in frames[:-1] for item in frame.computed] == []
    [computed] = frames[-1].computed
    assert (computed.request_id, computed.cached_tokens) == ("a", 4)
    assert not any(step(engine).computed for _ in range(3))


def test_answers_that_go_on_keep_an_older_prompt_from_nothing_once_it_is_due() -> None:
    """Each fills a step, and another one comes with every step."""
    clock = ManualClock()
    engine = small_engine(small_replica(400), clock=clock, max_batch_tokens=4)
    engine.apply(Submit(request("older", PROMPT, mode=PrefillMode.EXPORT)))
    first: list[str] = []
    for number in range(20):
        clock.advance(0.3)
        begun = [BegunChoice(0, [2, 3])]
        body = request(f"r{number}", [1 + number % 6, 1], mode=PrefillMode.EXPORT)
        engine.apply(Submit(structs.replace(body, resume=begun)))
        first += [event.request_id for event in engine.step().tokens]
    assert "older" in first[:3]
