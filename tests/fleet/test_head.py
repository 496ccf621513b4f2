"""Fleets with heads: what they guess changes no token, over handoffs; and one whose keys and values
are shaped as the model's goes on behind a handoff with all that the prefill worker's has read."""

import random

import pytest
import transformers

from cluster.models.cache.store import ModelStore
from tests.engine.model.tiny_eagle import eagle_config, heads_card, random_tensors, saved_heads
from tests.fleet.counting_model import (
    counted_on,
    counting_prompt,
    saved_counting_head,
    saved_counting_model,
)
from tests.fleet.drafted import tried_and_kept
from tests.fleet.joined_worker import joined_worker
from tests.fleet.one_fleet import ENGINE, PATIENT
from tests.fleet.put_directly import greedy_submit, members_of, submit_alone
from tests.fleet.support import fleet_channel, running_fleet
from tests.fleet.test_draft_model import LIMIT_S, answers, num_guessed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NUM_TOKENS = 60
LENGTHS = (100, 129, 128)
"""Of prompts: the last token is within a block, alone in one, and the last of one."""


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    """Of SmolLM2's width; it was not trained, and is hardly ever right."""
    shape = ModelStore().resolve("smollm2").config
    target = transformers.LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        rms_norm_eps=shape.rms_norm_eps,
    )
    config = eagle_config(target, draft_vocab_size=2000)
    return saved_heads(random_tensors(config), config, tmp_path_factory.mktemp("heads") / "eagle")


async def test_tokens_over_handoffs_are_those_without_and_guesses_were_tried(head, tmp_path):
    given = ("--model", "smollm2", *ENGINE)
    with running_fleet(tmp_path / "off", *given, "--speculation", "off", num_workers=2) as fleet:
        expected = await answers(fleet)
        assert num_guessed(expected) == 0
    drafting = (*given, "--speculation", str(head))
    with running_fleet(tmp_path / "heads", *drafting, num_workers=2) as fleet:
        found = await answers(fleet)
        assert [each.tokens for each in found] == [each.tokens for each in expected]
        decode_log = tmp_path / "heads" / "decode-0.log"
        tried, _ = tried_and_kept(decode_log, num_tokens=num_guessed(found))
        assert tried["heads"] > 0, tried
        log = fleet.log_path.read_text()
        assert "speculation eagle (head " in log
        assert log.count("load head") == 1  # the prefill worker has none


async def counted(fleet, decode, prefill):
    """Ends of answers that one decode worker has given, with prompts that nobody has cached."""
    ends, chance = [], random.Random(9)
    async with fleet_channel(decode.address) as channel:
        for number, length in enumerate(LENGTHS):
            prompt = counting_prompt(number, length)
            submit = greedy_submit(prompt, NUM_TOKENS, prefill, chance, timeout_s=LIMIT_S)
            tokens, ended = await submit_alone(channel, decode, submit)
            assert (tokens, ended.error.code) == (counted_on(NUM_TOKENS), "")
            ends.append(ended.timing)
    return ends


async def test_a_head_goes_on_behind_a_handoff_with_all_that_the_prefill_worker_s_has_read(
    tmp_path,
):
    """One that has not all keys and values, or not the last state, is never right: see
    counting_model.py."""
    model, head = saved_counting_model(tmp_path / "model"), saved_counting_head(tmp_path / "head")
    other = saved_counting_head(tmp_path / "other", logit=90.0)
    given = ("--model", str(model), "--dtype", "float32", *ENGINE, *PATIENT)
    drafting = (*given, "--speculation", str(head))
    with running_fleet(tmp_path / "fleet", *drafting, num_workers=2) as fleet:
        decode, prefill = await by_role(fleet)
        digest = heads_card(head).weights_digest
        assert decode.pairing.head == prefill.pairing.head == f"eagle3:{digest}:1"
        ends = await counted(fleet, decode, [prefill])
        assert {each.prefill_worker for each in ends} == {prefill.worker_id}
        num_tokens = sum(each.draft_tokens for each in ends)
        tried, kept = tried_and_kept(tmp_path / "fleet" / "decode-0.log", num_tokens=num_tokens)
        assert 2 * kept["heads"] > tried["heads"] > 0, (tried, kept)
        log = fleet.log_path.read_text()
        assert log.count("handed over with its blocks") == log.count("load head") == 2
        elsewhere = (*given, "--speculation", str(other))
        with joined_worker(fleet, "prefill", "stranger", *elsewhere, log=tmp_path / "stranger.log"):
            stranger = (await by_role(fleet, "stranger"))[1]
            assert stranger.pairing.head == f"eagle3:{heads_card(other).weights_digest}:1"
            ends = await counted(fleet, decode, [stranger])
            assert {(each.prefill_worker, each.kv_bytes) for each in ends} == {("", 0)}
        log = fleet.log_path.read_text()
        assert f"its blocks have the head {stranger.pairing.head} and ours the head" in log


async def by_role(fleet, prefill="prefill-0"):
    """A decode worker, and that prefill worker."""
    async with fleet_channel(fleet.grpc_address) as router:
        members = {member.worker_id: member for member in await members_of(router)}
    return members["decode-0"], members[prefill]
