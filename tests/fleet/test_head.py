"""A fleet whose decode worker has a head gives the tokens of one without, over handoffs."""

import pytest
import transformers

from cluster.models.cache.store import ModelStore
from tests.engine.model.tiny_eagle import eagle_config, random_tensors, saved_heads
from tests.fleet.one_fleet import ENGINE
from tests.fleet.support import running_fleet
from tests.fleet.test_draft_model import answers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    """Of SmolLM2's shape; it was not trained, and is hardly ever right."""
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
    drafting = (*given, "--speculation", str(head))
    with running_fleet(tmp_path / "heads", *drafting, num_workers=2) as fleet:
        found = await answers(fleet)
        assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
        assert sum(guessed for _, guessed in found) > 0 == sum(guessed for _, guessed in expected)
        log = fleet.log_path.read_text()
        assert "speculation eagle (head " in log
        assert log.count("load head") == 1  # the prefill worker has none
