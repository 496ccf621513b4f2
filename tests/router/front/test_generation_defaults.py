"""What a checkpoint's generation_config.json says counts where a client says nothing."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cluster.config import RouterOptions
from cluster.errors import BadCheckpoint
from cluster.models.cache.store import ModelStore
from cluster.models.card import CheckpointFormat
from cluster.models.hf.generation_defaults import GenerationDefaults, generation_defaults_of
from protos import generation_pb2, inference_pb2
from router.api.reading.chat_reader import ChatReader
from router.dispatch.time_limits import DefaultTimes
from router.front.caller import NOBODY
from router.front.generation_request import TextPrompt
from router.front.model_loading import load_served_model
from router.grpc_front.request_reading import read_request
from router.tenants.tenant import ANYBODY
from tests.cluster.models.conftest import TinyFolder
from tests.router.front_fakes import byte_model

STATED = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_new_tokens": 99, "do_sample": True}


def card_in(folder, **stated):
    (folder / "generation_config.json").write_text(json.dumps(stated))
    return SimpleNamespace(format=CheckpointFormat.SAFETENSORS, metadata_path=folder)


def test_the_fields_of_sampling_are_read_and_no_others(tmp_path):
    found = generation_defaults_of(card_in(tmp_path, **STATED, eos_token_id=2))
    assert found == GenerationDefaults(temperature=0.6, top_p=0.95, top_k=20, max_new_tokens=99)


def test_a_gguf_file_has_none(tmp_path):
    card = card_in(tmp_path, **STATED)
    card.format = CheckpointFormat.GGUF
    assert generation_defaults_of(card) == GenerationDefaults()


@pytest.mark.parametrize("wrong", ["0.6", [1], True, float("nan")])
def test_a_value_that_is_no_number_is_refused(tmp_path, wrong):
    with pytest.raises(BadCheckpoint, match="temperature"):
        generation_defaults_of(card_in(tmp_path, temperature=wrong))


@pytest.mark.parametrize(("choice", "temperature"), [("auto", 0.6), ("none", None)])
def test_the_served_model_has_them_unless_the_operator_wants_none(choice, temperature, tmp_path):
    folder = TinyFolder(tmp_path).write()
    (folder / "generation_config.json").write_text(json.dumps(STATED))
    card = ModelStore().resolve(str(folder))
    model = load_served_model(card, RouterOptions(generation_config=choice), lambda: 100)
    assert model.defaults.temperature == temperature


def test_a_clients_fields_win_over_the_checkpoints():
    defaults = GenerationDefaults(temperature=0.6, top_k=20, max_new_tokens=99)
    reader = ChatReader(replace(byte_model(), defaults=defaults))
    body = {"messages": [{"role": "user", "content": "x"}], "top_k": 5, "top_p": 0.5}
    plan = reader.read(json.dumps(body).encode())
    sampling = plan.wishes.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.6, 5, 0.5)
    assert (plan.wishes.max_tokens, plan.wishes.default_max_tokens) == (None, 99)


def test_over_grpc_they_count_for_what_a_message_leaves_unset():
    defaults = GenerationDefaults(temperature=0.6, top_k=20, max_new_tokens=99)
    wire = generation_pb2.SamplingParams(temperature=0.0, top_p=0.5)
    request = read_request(
        inference_pb2.GenerateRequest(sampling=wire),
        TextPrompt("x"),
        "r1",
        tenant=ANYBODY,
        caller=NOBODY,
        limits=DefaultTimes(first_token_s=1.0, between_tokens_s=1.0).limits(0.0, None),
        defaults=defaults,
    )
    sampling = request.wishes.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.0, 20, 0.5)
    assert (request.wishes.max_tokens, request.wishes.default_max_tokens) == (None, 99)
