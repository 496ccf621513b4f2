"""SmolLM2's answers in a grammar, with prompt lookup and forced tokens: those without, token for
token, in one engine, through prefill and decode pools, and on two ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cluster.models.cache.store import ModelStore
from cluster.models.text.grammars import load_grammar_tokenizer
from cluster.models.text.tokenizer import load_tokenizer
from cluster.sampling import SamplingParams
from engine.contract.commands import (
    ChoiceToken,
    Deliver,
    GenerateRequest,
    PrefillMode,
    Seed,
    Submit,
)
from engine.offline.queue import Completion, collect, generate
from engine.offline.replica import OfflineSetup, offline_spec
from engine.runner.model_runner import Replica
from engine.runner.replica import load_replica
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step.engine import Engine
from engine.step.requests.lifecycle import SequenceState
from router.grammar.json_schema import schema_grammar
from tests.engine.runner.ranks.groups import running, spec_of
from tests.engine.sampling.grammars.late_masks import AT_ONCE
from tests.engine.step.engine_scenario import copy_kv
from tests.kernels.kernel_sets import cpu_set

SETUP = OfflineSetup(device="cpu", prefix_cache=True)
LINES = schema_grammar(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "customer": {"type": "string", "maxLength": 12},
                "is_paid_already": {"type": "boolean"},
                "kind": {"enum": ["book", "record"]},
            },
            "required": ["customer", "is_paid_already", "kind"],
            "additionalProperties": False,
        },
        "minItems": 20,
    },
    param="s",
)
PROMPT = "<|im_start|>user\nOrders of customer {} as JSON.<|im_end|>\n<|im_start|>assistant\n"
WAYS = [{"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.9}]


def loaded() -> Replica:
    cpu_set("native")
    spec = offline_spec(SETUP)
    options = replace(spec.options, kv_memory_bytes=64 << 20, max_context_tokens=512)
    return load_replica(msgspec.structs.replace(spec, options=options), lambda phase, part: None)


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    yield loaded()


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = load_tokenizer(ModelStore().resolve("smollm2"))
    return [tokenizer.encode(PROMPT.format(i), add_special=False) for i in range(6)]


def engine(replica: Replica, speculation: str) -> Engine:
    """Whose masks are waited for."""
    card = ModelStore().resolve("smollm2")
    made = Engine(
        replica,
        replace(SETUP.options, speculation=speculation),
        grammars=GrammarCompiler(lambda: load_grammar_tokenizer(card)),
    )
    made.masking.waits = AT_ONCE
    return made


def bodies(prompts: list[list[int]], **sampling: Any) -> list[GenerateRequest]:
    """Every third is free of a grammar."""
    return [
        GenerateRequest(
            request_id=str(i),
            token_ids=prompt,
            sampling=SamplingParams(
                max_tokens=48, seed=i, grammar=None if i % 3 == 2 else LINES, **sampling
            ),
            cache_root=bytes(16),
            timeout_ms=600_000.0,
        )
        for i, prompt in enumerate(prompts)
    ]


def num_kept(completions: list[Completion]) -> list[int]:
    return [each.ended.accepted_draft_tokens for each in completions if each.ended is not None]


@pytest.mark.parametrize("way", WAYS, ids=["greedy", "seeded"])
def test_answers_side_by_side_and_alone_are_those_without_drafts(
    way: dict[str, Any], replica: Replica, prompts: list[list[int]]
) -> None:
    asked = bodies(prompts, **way)
    plain = generate(engine(replica, "off"), asked)
    drafting = engine(replica, "ngram")
    found = generate(drafting, asked)
    assert [done.tokens for done in found] == [done.tokens for done in plain]
    [alone] = generate(drafting, asked[:1])
    assert alone.tokens == plain[0].tokens
    assert drafting.check_invariants() == []
    assert num_kept([alone])[0] > 8


@pytest.mark.parametrize("way", WAYS, ids=["greedy", "seeded"])
def test_through_prefill_and_decode_pools_answers_are_those_without_drafts(
    way: dict[str, Any], replica: Replica, prompts: list[list[int]]
) -> None:
    body = bodies(prompts, **way)[0]
    [plain] = generate(engine(replica, "off"), [body])
    other = loaded()
    source, target = engine(other, "ngram"), engine(replica, "ngram")
    source.apply(Submit(msgspec.structs.replace(body, mode=PrefillMode.EXPORT)))
    frames = [source.step()]
    while not source.table.counts[SequenceState.EXPORTED]:
        frames.append(source.step())
    target.apply(Submit(msgspec.structs.replace(body, mode=PrefillMode.REMOTE)))
    while not (reserved := target.step().reserved):
        pass
    blocks = [i for frame in frames for item in frame.prefilled for i in item.span.block_ids]
    first = reserved[0].first_block
    into = reserved[0].block_ids
    copy_kv(other.kv, replica.kv, list(zip(blocks[first:], into[first:], strict=True)))
    target.apply(Deliver(body.request_id, first, len(into) - first))
    [event] = [event for frame in frames for event in frame.tokens]
    target.apply(Seed(body.request_id, [ChoiceToken(0, event.token)]))
    done = {body.request_id: Completion()}
    while done[body.request_id].ended is None:
        collect(target.step(), done)
    assert done[body.request_id].tokens == plain.tokens
    assert num_kept(list(done.values()))[0] > 8


def test_two_ranks_give_with_drafts_what_they_give_without(prompts: list[list[int]]) -> None:
    """Free answers, and those in a grammar."""
    card = ModelStore().resolve("smollm2")
    spec = spec_of(card, 2, kv_memory_bytes=64 << 20, max_context_tokens=512)
    asked = bodies(prompts[:3], temperature=0.0)
    found = dict[str, list[Completion]]()
    with running(spec) as group:
        for speculation in ("off", "ngram"):
            made = Engine(
                group,
                replace(spec.options, speculation=speculation),
                grammars=GrammarCompiler(lambda: load_grammar_tokenizer(card)),
            )
            made.masking.waits = AT_ONCE
            found[speculation] = generate(made, asked)
            assert made.check_invariants() == []
    plain, drafted = found["off"], found["ngram"]
    assert [done.tokens for done in drafted] == [done.tokens for done in plain]
    assert sum(num_kept(found["ngram"])) > 8
