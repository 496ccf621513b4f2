"""A request of ours as a body of vLLM's `/v1/completions`: token ids in, token ids out.

The router has tokenized, and detokenizes, so that texts, stop strings, tools, usage and choices are
as with workers of our own. What vLLM cannot do exactly so is refused by its name.
"""

from __future__ import annotations

from typing import Any

from cluster.errors import InvalidRequest
from cluster.grammar_wire import grammar_from_wire
from protos import generation_pb2, worker_pb2
from router.vllm.vllm_grammar import structured_outputs

COMPLETIONS = "/v1/completions"
_SEEDS = 1 << 64
_LARGEST_SEED = 1 << 63
_SHIFTING = ("presence_penalty", "frequency_penalty", "logit_bias")


def completion_body(submit: worker_pb2.Submit, model: str, salt: str) -> dict[str, Any]:
    """Raises InvalidRequest, naming the field that vLLM has no exact answer to.

    `salt`: of the server's cache, by the root of the tenant's blocks (`VllmServer.salt_of`):
    tenants do not meet in it, and its KV events say of each first block whose it is.
    """
    sampling = submit.sampling
    _check_exact(submit)
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(submit.token_ids),
        "add_special_tokens": False,
        "cache_salt": salt,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    body |= _sampling_fields(sampling)
    if sampling.HasField("grammar"):
        body["structured_outputs"] = structured_outputs(grammar_from_wire(sampling.grammar))
    if sampling.HasField("logprobs"):
        body["logprobs"] = sampling.logprobs
    return body


def prefill_body(body: dict[str, Any]) -> dict[str, Any]:
    """The same for whoever computes the prompt only, and keeps it for a reader: older vLLM
    keeps nothing of a request that a token has stopped, be it the one that nobody gets."""
    one: dict[str, Any] = {"max_tokens": 1, "min_tokens": 0, "n": 1, "stream": False}
    one |= {"ignore_eos": True, "stop_token_ids": []}
    left_out = (
        *("stream_options", "logprobs", "return_token_ids", "return_tokens_as_token_ids"),
        "structured_outputs",  # nobody gets the token that it makes
    )
    kept = {name: value for name, value in body.items() if name not in left_out}
    return kept | one | {"kv_transfer_params": {"do_remote_decode": True}}


def decode_body(body: dict[str, Any], handoff: dict[str, Any]) -> dict[str, Any]:
    """The same for whoever reads the prompt's blocks from there."""
    return body | {"kv_transfer_params": handoff}


def _sampling_fields(sampling: generation_pb2.SamplingParams) -> dict[str, Any]:
    """All of them: what is absent would be the server's own default."""
    return {
        "max_tokens": sampling.max_tokens,
        "min_tokens": sampling.min_tokens,
        "n": sampling.n,
        "seed": _signed(sampling.seed),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias.items()},
        "stop_token_ids": list(sampling.stop_token_ids),
        "ignore_eos": sampling.ignore_eos,
    }


def _check_exact(submit: worker_pb2.Submit) -> None:
    sampling = submit.sampling
    if sampling.HasField("prompt_logprobs"):
        raise InvalidRequest(
            "scores of the prompt are not to be had from vLLM workers; leave prompt_logprobs and "
            "echo with logprobs out",
            param="prompt_logprobs",
        )
    if sampling.HasField("logprobs") and _shifts_logits(sampling):
        raise InvalidRequest(
            "vLLM workers give logprobs without penalties and bias, which would not be those of "
            "the tokens' choice; ask for logprobs, or for penalties and bias",
            param="logprobs",
        )
    if sampling.HasField("beams"):
        raise InvalidRequest(
            "vLLM workers search no beams; leave use_beam_search out", param="use_beam_search"
        )
    if submit.resume:
        raise InvalidRequest("vLLM workers do not go on with another worker's answer")


def _shifts_logits(sampling: generation_pb2.SamplingParams) -> bool:
    return sampling.repetition_penalty != 1.0 or any(getattr(sampling, n) for n in _SHIFTING)


def _signed(seed: int) -> int:
    """vLLM's seeds are signed: the same 64 bits."""
    return seed - _SEEDS if seed >= _LARGEST_SEED else seed
