"""What prompts that become embeddings or scores may be, for readers of bodies and the pipeline."""

from __future__ import annotations

from cluster.errors import InvalidRequest
from cluster.models.pooling import Pooling
from cluster.sampling import in_words
from router.front.served_model import ServedModel

MAX_INPUTS = 2048
"""Of one request: OpenAI's."""
MAX_INPUT_TOKENS = 300_000
"""Of all of them together: OpenAI's. SmolLM2 computes 8,000 a second on two cores."""


def check_pooled(
    model: ServedModel, num_inputs: int, dimensions: int | None, param: str
) -> Pooling:
    """How the model pools so many inputs, which `param` has. Raises InvalidRequest."""
    pooling = model.pooling
    if pooling is None:
        raise no_pooling(model)
    if not 1 <= num_inputs <= MAX_INPUTS:
        raise InvalidRequest(
            f"{param} has {num_inputs} inputs; allowed: 1 to {MAX_INPUTS}", param=param
        )
    if dimensions is not None:
        check_dimensions(dimensions, pooling, model)
    return pooling


def check_input_tokens(num_inputs: int, num_tokens: int, param: str) -> None:
    """Raises InvalidRequest, naming `param`, where the first inputs of a request have too many
    together."""
    if num_tokens > MAX_INPUT_TOKENS:
        raise InvalidRequest(
            f"the first {num_inputs} inputs have {num_tokens} tokens; allowed: "
            f"{MAX_INPUT_TOKENS} over all inputs of a request: send fewer at once",
            param=param,
        )


def no_pooling(model: ServedModel) -> InvalidRequest:
    """For a model of text."""
    return InvalidRequest(
        f"{model.name} makes text, and neither embeddings nor scores; its operator may say how "
        "prompts are pooled (--pooling)",
        param="model",
    )


def check_embeds(model: ServedModel, dimensions: int | None) -> None:
    """Raises InvalidRequest for a model that makes no embeddings, or none of so many values."""
    if model.pooling is None:
        raise no_pooling(model)
    if not model.pooling.is_embedding:
        raise InvalidRequest(
            f"{model.name} scores pairs of texts; see /v1/score and /v1/rerank", param="model"
        )
    if dimensions is not None:
        check_dimensions(dimensions, model.pooling, model)


def check_dimensions(dimensions: int, pooling: Pooling, model: ServedModel) -> None:
    """Raises InvalidRequest with what is allowed."""
    if not pooling.is_embedding or pooling.dimensions is None:
        raise InvalidRequest(
            f"dimensions is {in_words(dimensions)}; {model.name} was not trained to have its "
            "embeddings cut (its operator may say otherwise: --matryoshka)",
            param="dimensions",
        )
    allowed = pooling.dimensions
    if not 1 <= dimensions <= model.hidden_size or (allowed and dimensions not in allowed):
        words = ", ".join(map(str, allowed[:32])) or f"1 to {model.hidden_size}"
        raise InvalidRequest(
            f"dimensions is {in_words(dimensions)}; allowed: {words}", param="dimensions"
        )
