"""Who answers at a vLLM server's address, before it is given anything to do.

    /version, /v1/models, /metrics, /kv_event_sources -> what it is
    /tokenize of a text, compared with the router's own ids -> that it is the router's model

No endpoint tells the digest of the weights: that they are those of the router's model is the word
of whoever has named the server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from cluster.errors import PairingMismatch, WorkerLost
from cluster.kv_shape import KvShape
from cluster.membership.member import Member
from cluster.pairing import RESUME_VERSION, VLLM, Pairing
from router.vllm.server import VllmServer
from router.vllm.server_address import VllmRole
from router.vllm.server_numbers import ServerNumbers
from router.vllm.wire import check

ASK_TIMEOUT_S = 5.0
PROBE = "Käse, 東京 and 1024 tokens:\n\tdef f(x): return x ** 2  # naïve 🙂"
"""Tokenizers that agree on it are the same one in practice."""
PROTOCOL = RESUME_VERSION - 1
"""vLLM does not go on with another worker's answer."""
DEFAULT_BLOCK_TOKENS = 16
Said = TypeVar("Said")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontedModel:
    """What the router serves, and vLLM servers have to serve, too."""

    name: str
    """As clients call it."""
    weights_digest: str
    tokenizer_digest: str
    kv_shape: KvShape
    encode: Callable[[str], list[int]]
    """Without the model's own prefix."""


class ListedModel(msgspec.Struct):
    """Of `/v1/models`; a `parent` is what an adapter belongs to."""

    id: str
    max_model_len: int | None = None
    parent: str | None = None


class ModelList(msgspec.Struct):
    """`/v1/models`."""

    data: list[ListedModel]


class SaidVersion(msgspec.Struct):
    """`/version`."""

    version: str


class Tokenized(msgspec.Struct):
    """`/tokenize`."""

    tokens: list[int]


async def introduced(
    server: VllmServer, numbers: ServerNumbers, model: FrontedModel, incarnation: str
) -> Member:
    """The record of the process that answers. Raises WorkerLost when it cannot be asked, and
    PairingMismatch when it serves something else; InvalidRequest for what no member can be."""
    listed = await _first_model(server)
    version = (await _asked(server, "/version", SaidVersion)).version
    await _check_tokenizer(server, listed.id, model)
    address = server.address
    member = Member(
        worker_id=address.worker_id,
        incarnation=incarnation,
        role=address.fleet_role,
        address=address.host_port,
        pairing=_pairing(server, numbers, model, version),
        model=listed.id,
        max_context_tokens=listed.max_model_len or 0,
        kv_transport="" if address.role is VllmRole.BOTH else "nixl",
        version=f"vLLM {version}",
    )
    member.check()
    return member


def _pairing(
    server: VllmServer, numbers: ServerNumbers, model: FrontedModel, version: str
) -> Pairing:
    """Of one version, since NixlConnector refuses another; an aggregated server pairs with none."""
    shape = model.kv_shape
    form = "vllm" if server.address.role is VllmRole.BOTH else "vllm-nixl"
    return Pairing(
        weights_digest=model.weights_digest,
        tokenizer_digest=model.tokenizer_digest,
        dtype=f"{form}-{version}",
        weights=VLLM,
        block_size_tokens=numbers.block_size_tokens or DEFAULT_BLOCK_TOKENS,
        num_layers=shape.num_layers,
        num_planes=shape.num_planes,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        protocol_version=PROTOCOL,
    )


async def _first_model(server: VllmServer) -> ListedModel:
    found = [m for m in (await _asked(server, "/v1/models", ModelList)).data if m.parent is None]
    if not found:
        raise PairingMismatch(f"{server.name} serves no model")
    return found[0]


async def _check_tokenizer(server: VllmServer, name: str, model: FrontedModel) -> None:
    asked = {"model": name, "prompt": PROBE, "add_special_tokens": False}
    theirs = (await _asked(server, "/tokenize", Tokenized, asked)).tokens
    ours = model.encode(PROBE)
    if theirs != ours:
        raise PairingMismatch(
            f"{server.name} ({name}) tokenizes another way than the router's model: {len(theirs)} "
            f"tokens of a text that has {len(ours)} here; start both with the same model"
        )


async def _asked(
    server: VllmServer, path: str, kind: type[Said], body: dict[str, Any] | None = None
) -> Said:
    if body is None:
        answer = await server.wire.get(path, timeout_s=ASK_TIMEOUT_S)
    else:
        answer = await server.wire.post(path, body, timeout_s=ASK_TIMEOUT_S)
    try:
        return msgspec.json.decode(check(answer, f"{server.name}{path}").body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise WorkerLost(f"{server.name}{path} answered what is no vLLM's: {cause}") from cause
