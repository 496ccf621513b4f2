"""Answers that are free up to a word and bound from there, with drafts: a form after a thought, and
structural tags. They are those without drafts, wherever in a guessed run something ends."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jsonschema
import pytest
import torch
from msgspec import structs

from cluster.engine_options import EngineOptions
from cluster.generation import FinishReason, GeneratedToken
from cluster.grammar import Grammar
from engine.contract.commands import Finish, GenerateRequest, Submit
from engine.contract.messages import Frame
from engine.offline.queue import Completion, collect
from engine.runner.model_runner import Replica
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step.drafting.draft import MAX_DRAFT_TOKENS, MakeGuesser
from engine.step.engine import Engine
from router.grammar.json_schema import schema_grammar
from router.grammar.structural_tag import structural_tag_grammar
from router.grammar.thought_first import after_thought
from router.text.choice import ChoiceText, ShownToken
from router.text.choice_count import ChoiceCount
from router.text.stop_strings import StopAutomaton
from router.tools.thoughts import ThoughtFormat
from tests.engine.sampling.grammars.grammar_engine import (
    BLOCK_SIZE,
    PROMPT,
    card,
    grammar_tokenizer,
    replica,
    request,
    text_of,
    text_tokenizer,
)
from tests.engine.sampling.grammars.late_masks import AT_ONCE
from tests.engine.step.engine_scenario import check
from tests.engine.step.guessing import TickingClock, oracles
from tests.engine.step.model_guessing import nobody
from tests.engine.step.scripted import scripted, with_scripted_head

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "is_here": {"type": "boolean"},
    },
    "required": ["age", "is_here"],
    "additionalProperties": False,
}
TAG = {
    "type": "structural_tag",
    "triggers": ["<fn="],
    "structures": [
        {"begin": "<fn=person>", "schema": PERSON, "end": "</fn>"},
        {"begin": "<fn=count>", "schema": {"type": "integer"}, "end": "</fn>"},
    ],
}
THOUGHTS = ThoughtFormat("<think>", "</think>")
SPECIAL = ThoughtFormat("<jupyter_start>", "<jupyter_text>")
"""Words that are one token each for SmolLM2."""
ANSWER = '{"age": 41, "is_here": true}'
PARTS = re.compile(r"<fn=(person|count)>(.*?)</fn>", re.DOTALL)


class Case(NamedTuple):
    """A grammar, what a model would say that keeps to it, the word that ends its free part, and
    what it would say that does not."""

    grammar: Grammar
    said: str
    word: str
    forbidden: str


@cache
def cases() -> dict[str, Case]:
    form = schema_grammar(PERSON, param="s")
    spelled = after_thought(form, THOUGHTS, {})
    special = after_thought(form, SPECIAL, {word: id_of(word) for word in SPECIAL.words})
    assert spelled.plain and spelled.in_thought and special.plain
    tag = structural_tag_grammar(TAG, param="s")
    freely = " Sure, that person is 41 years old."
    return {
        "a thought that the prompt began": Case(
            spelled.in_thought, f"So, {{ 41.</think>\n{ANSWER}", "</think>", freely
        ),
        "a thought": Case(
            spelled.plain, f"<think>Let me see.</think>\n{ANSWER}", "</think>", freely
        ),
        "a thought between special tokens": Case(
            special.plain,
            f"<jupyter_start>Let me see.<jupyter_text>{ANSWER}",
            "<jupyter_text>",
            freely,
        ),
        "a structural tag": Case(
            tag,
            f"I see <fn=person>{ANSWER}</fn> and <fn=count>12</fn> of those.",
            "<fn=person>",
            freely,
        ),
    }


NAMES = (
    "a thought that the prompt began",
    "a thought",
    "a thought between special tokens",
    "a structural tag",
)
WAYS = {"greedy": {"temperature": 0.0}, "seeded": {"temperature": 1.0}}


SEEDS = range(2)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Torch's others would wait for each other."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def id_of(word: str) -> int:
    [token_id] = text_tokenizer().encode(word)
    return token_id


def script_of(text: str) -> list[int]:
    return [*text_tokenizer().encode(text), card().eos_token_ids[0]]


def engine_of(target: Replica, make_guesser: MakeGuesser | None, **options: Any) -> Engine:
    """Its masks are waited for; by its clock drafts pay."""
    given = {"block_size_tokens": BLOCK_SIZE, "max_batch_tokens": 64, "max_num_seqs": 16} | options
    made = Engine(
        target,
        EngineOptions(**given),
        clock=TickingClock(),
        grammars=GrammarCompiler(grammar_tokenizer),
        make_guesser=make_guesser,
    )
    made.masking.waits = AT_ONCE
    return made


def model_of(case: Case) -> Replica:
    """Whose rows are those of single steps, as is told of it here."""
    target = scripted(replica(64), len(PROMPT), script_of(case.said))
    return replace(target, loaded=structs.replace(target.loaded, has_alike_rows=True))


def plain(case: Case) -> Engine:
    """Without drafts."""
    return engine_of(model_of(case), None, speculation="off")


def predicting(case: Case, mistakes: float = 0.0, shortest: int = MAX_DRAFT_TOKENS) -> Engine:
    """It guesses what requests predict, a share of it wrongly."""
    return engine_of(model_of(case), oracles(mistakes, shortest=shortest))


def looking_up(case: Case) -> Engine:
    """In what requests predict, and in the text so far."""
    return engine_of(model_of(case), None, speculation="ngram")


def with_head(case: Case) -> Engine:
    """Which knows the answer; nothing is looked up."""
    target = with_scripted_head(replica(64), len(PROMPT), script_of(case.said))
    return engine_of(target, nobody)


DRAFTERS: dict[str, Callable[[Case], Engine]] = {
    "whole runs": predicting,
    "wrong now and then": lambda case: predicting(case, 0.3, 1),
    "lookup": looking_up,
    "a head": with_head,
}


def bodies_of(case: Case, **sampling: Any) -> list[GenerateRequest]:
    """Of several seeds."""
    given = {"max_tokens": 60, "logit_bias": {}} | sampling
    return [request(f"r{seed}", case.grammar, **(given | {"seed": seed})) for seed in SEEDS]


def stepwise(
    engine: Engine, bodies: Sequence[GenerateRequest]
) -> tuple[list[Completion], list[Frame]]:
    """To the end of all, with every frame on the way."""
    done, frames = {body.request_id: Completion() for body in bodies}, list[Frame]()
    for body in bodies:
        engine.apply(Submit(body))
    while not all(each.ended for each in done.values()):
        frames.append(engine.step())
        check(engine)
        collect(frames[-1], done)
    assert engine.placement.pool.leases == frozenset()
    return list(done.values()), frames


@cache
def told(name: str, way: str) -> tuple[list[GenerateRequest], list[Completion]]:
    """Bodies that predict their answers, and these, of an engine without drafts."""
    case = cases()[name]
    bodies = bodies_of(case, **WAYS[way])
    expected, _ = stepwise(plain(case), bodies)
    pairs = zip(bodies, expected, strict=True)
    asked = [structs.replace(body, prediction=done.token_ids()) for body, done in pairs]
    return asked, expected


def assert_alike(found: list[Completion], expected: list[Completion]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.finish_reasons == other.finish_reasons
        assert one.ended is not None and not one.ended.error_code


def num_kept(found: list[Completion]) -> int:
    return sum(each.ended.accepted_draft_tokens for each in found if each.ended is not None)


def goes_over(word: str, frames: list[Frame], request_id: str) -> bool:
    """A step gave tokens before the end of the word, and behind it."""
    text = ""
    for frame in frames:
        tokens = [each.token for each in frame.tokens if each.request_id == request_id]
        for index, token in enumerate(tokens):
            text += text_tokenizer().token_text(token.token_id)
            if word in text:
                return 0 < index < len(tokens) - 1
    return False


def shown(
    engine: Engine, body: GenerateRequest, stop: str
) -> tuple[str, list[GeneratedToken], int]:
    """What a client sees of an answer that its stop string ends: the text, the tokens, and how many
    count."""
    count, stream = ChoiceCount(), text_tokenizer().new_stream()
    choice = ChoiceText(0, count, stream, StopAutomaton([stop]), keep_tokens=True)
    count.listen(lambda: engine.apply(Finish(body.request_id, [0])))
    text, tokens = "", list[ShownToken]()
    engine.apply(Submit(body))
    is_over = False
    while not is_over:
        frame = engine.step()
        check(engine)
        given = [event.token for event in frame.tokens]
        count.gave(len(given))
        reasons = [event.finish_reason for event in frame.tokens if event.finish_reason]
        for delta in choice.push(given, *reasons or [None]):
            text += delta.text
            tokens += delta.tokens
        is_over = bool(frame.ended)
    assert choice.finish_reason is FinishReason.STOP
    assert engine.placement.pool.leases == frozenset()
    return text, [each.token for each in tokens], count.num_tokens


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_answers_are_those_without_drafts_also_where_a_run_goes_over_the_word(
    way: str, name: str
) -> None:
    case, (bodies, expected) = cases()[name], told(name, way)
    num_over = 0
    for make_engine in DRAFTERS.values():
        found, frames = stepwise(make_engine(case), bodies)
        assert_alike(found, expected)
        assert num_kept(found) > 8
        num_over += sum(goes_over(case.word, frames, body.request_id) for body in bodies)
    assert num_over > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_goes_over_the_word_is_held_to_the_form_behind_it(name: str) -> None:
    """The model would go on freely: only the masks of rows behind the word keep it from that."""
    case = cases()[name]
    free = case.said.partition(case.word)[0] + case.word + case.forbidden
    case = case._replace(said=free)
    bodies = bodies_of(case, temperature=0.0, max_tokens=40)[:1]
    expected, _ = stepwise(plain(case), bodies)
    answer = expected[0].token_ids()
    for prediction in (answer, text_tokenizer().encode(free)):
        asked = [structs.replace(body, prediction=prediction) for body in bodies]
        for make_engine in (predicting, looking_up):
            found, frames = stepwise(make_engine(case), asked)
            assert_alike(found, expected)
            if prediction is answer and make_engine is predicting:
                assert goes_over(case.word, frames, bodies[0].request_id)


@pytest.mark.parametrize("name", ["a thought", "a structural tag"])
def test_max_tokens_and_stop_tokens_end_an_answer_wherever_in_a_run_they_come(name: str) -> None:
    case, (bodies, _) = cases()[name], told(name, "greedy")
    body, engine = bodies[0], predicting(case)
    answer = body.prediction
    for most in range(1, len(answer)):
        params = structs.replace(body.sampling, max_tokens=most)
        [found], _ = stepwise(engine, [structs.replace(body, sampling=params)])
        assert found.token_ids() == answer[:most]
        assert found.finish_reasons == {0: FinishReason.LENGTH}
    for stop in dict.fromkeys(answer[:-1]):
        params = structs.replace(body.sampling, stop_token_ids=(stop,))
        [found], _ = stepwise(engine, [structs.replace(body, sampling=params)])
        assert found.token_ids() == answer[: answer.index(stop) + 1]
        assert found.finish_reasons == {0: FinishReason.STOP}


@pytest.mark.parametrize("name", ["a thought", "a structural tag"])
@pytest.mark.parametrize("stop", ["e", "true", ": 41", "is_h", 'age": 41, "', "41"])
def test_a_stop_string_in_a_run_ends_the_text_where_it_would_have(stop: str, name: str) -> None:
    """What came behind it in its run is neither shown nor counted."""
    case, (bodies, _) = cases()[name], told(name, "greedy")
    expected = shown(plain(case), bodies[0], stop)
    found = shown(predicting(case), bodies[0], stop)
    assert found == expected
    text, tokens, num_tokens = found
    assert text == case.said.partition(stop)[0] != case.said
    assert num_tokens == len(tokens) < len(bodies[0].prediction)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make_engine", [plain, predicting, with_head])
def test_parts_of_a_structural_tag_follow_their_schemas(
    make_engine: Callable[[Case], Engine], way: str
) -> None:
    case = cases()["a structural tag"]
    found, _ = stepwise(make_engine(case), told("a structural tag", way)[0])
    schemas = {each["begin"][4:-1]: each["schema"] for each in TAG["structures"]}
    num_parts = 0
    for done in found:
        text = text_of(done.token_ids())
        assert done.finish_reasons == {0: FinishReason.STOP}
        for kind, value in PARTS.findall(text):
            jsonschema.Draft202012Validator(schemas[kind]).validate(json.loads(value))
            num_parts += 1
        assert "<fn=" not in PARTS.sub("", text)
    assert num_parts >= 2


@pytest.mark.parametrize("make_engine", [plain, predicting])
def test_a_model_that_would_break_its_tag_cannot(make_engine: Callable[[Case], Engine]) -> None:
    """It leans towards text where a value of the schema has to be."""
    case = cases()["a structural tag"]._replace(said='<fn=person>{"age": "old", "is"}</fn>')
    expected, _ = stepwise(plain(case), bodies_of(case, temperature=0.0)[:1])
    answer = expected[0].token_ids()
    bodies = [structs.replace(bodies_of(case, temperature=0.0)[0], prediction=answer)]
    [found], _ = stepwise(make_engine(case), bodies)
    assert found.tokens == expected[0].tokens
    [(_, value)] = PARTS.findall(text_of(answer))
    jsonschema.Draft202012Validator(PERSON).validate(json.loads(value))
