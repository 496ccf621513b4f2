"""What a GenerateRequest asks its answer to be, in the same words as over HTTP."""

from __future__ import annotations

from typing import Any

from cluster.grammar import Grammar
from protos import inference_pb2
from router.grammar.structured_outputs import StructuredOutputs, grammar_of

PARAM = "structured_outputs"


def grammar_in(message: inference_pb2.GenerateRequest) -> Grammar | None:
    """None: any text will do. Raises InvalidRequest, naming the field at fault."""
    if not message.HasField(PARAM):
        return None
    asked = message.structured_outputs
    kind = asked.WhichOneof("constraint")
    constraint: dict[str, Any] = {}
    if kind is not None:
        constraint[kind] = list(asked.choice.texts) if kind == "choice" else getattr(asked, kind)
    return grammar_of(
        StructuredOutputs(
            disable_any_whitespace=asked.disable_any_whitespace,
            disable_additional_properties=asked.disable_additional_properties,
            whitespace_pattern=asked.whitespace_pattern,
            **constraint,
        ),
        param=PARAM,
    )
