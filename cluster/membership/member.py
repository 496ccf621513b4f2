"""A worker as the fleet knows it, and the checks of everything a worker says about itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields

from cluster.adapter import NOTHING_UNREAD, OfferedAdapter, UnreadAdapters
from cluster.errors import InvalidRequest
from cluster.generation import EngineLoad
from cluster.identity import Role, WorkerKey
from cluster.membership.reach import host_of, is_wildcard
from cluster.pairing import Pairing
from cluster.rank_facts import RankFacts
from cluster.wire import pairing_from_wire, pairing_to_wire
from protos import membership_pb2

MAX_NAME_CHARS = 256
MAX_CONTEXT_TOKENS = 2**24
MAX_BLOCK_SIZE_TOKENS = 1024
MAX_RANKS = 1024
MAX_SEQS = 2**20
MAX_KV_HEADS = 65_536
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*")
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_PAIRING_LIMITS = {
    "block_size_tokens": MAX_BLOCK_SIZE_TOKENS,
    "num_layers": 4096,
    "num_kv_heads": MAX_KV_HEADS,
    "head_dim": 65_536,
    "num_planes": 2,
    "protocol_version": 2**31,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Fields as in `protos/membership.proto`. Empty event addresses: the worker has no events."""

    worker_id: str
    incarnation: str
    role: Role
    address: str
    pairing: Pairing
    model: str
    max_context_tokens: int
    kv_events_address: str = ""
    kv_replay_address: str = ""
    kv_events_key: str = ""
    kv_reader_secret: str = field(default="", repr=False)
    kv_transport: str = ""
    version: str = ""
    pid: int = 0
    prefix_cache_off: bool = False
    max_num_seqs: int = 0
    """That it decodes at once; 0: it does not say."""
    pool: str = ""
    """Of several of its role; empty: the only one, which has the role's name."""
    ranks: tuple[RankFacts, ...] = ()
    """In order: the processes that hold its model."""
    pooling: str = ""
    """The word of its PoolingKind; empty: it does not pool."""
    draws: int = 0
    """Its DRAWS_VERSION: with the same seed the same tokens come of those where it is equal."""

    @property
    def key(self) -> WorkerKey:
        """The process: id and incarnation."""
        return WorkerKey(self.worker_id, self.incarnation)

    def check(self) -> None:
        """Raises InvalidRequest naming the first field that cannot be right."""
        for name in ("worker_id", "incarnation"):
            _check_name(name, getattr(self, name))
        if self.pool:
            _check_name("pool", self.pool)
        if not self.model or not self.model.isprintable():
            raise InvalidRequest(f"model is {self.model!r}; it must be a name", param="model")
        _check_address("address", self.address)
        for name in ("kv_events_address", "kv_replay_address"):
            _check_endpoint(name, getattr(self, name))
        for name in ("kv_events_key", "kv_reader_secret"):
            _check_key(name, getattr(self, name))
        for name in ("model", "kv_transport", "version", "pooling"):
            _check_length(name, getattr(self, name))
        _check_between("max_context_tokens", self.max_context_tokens, MAX_CONTEXT_TOKENS)
        for name in ("weights_digest", "tokenizer_digest", "dtype", "kv_dtype", "weights"):
            _check_name(f"pairing.{name}", getattr(self.pairing, name))
        if self.pairing.head:
            _check_name("pairing.head", self.pairing.head)
        for name, limit in _PAIRING_LIMITS.items():
            _check_between(f"pairing.{name}", getattr(self.pairing, name), limit)
        _check_ranks(self.ranks)
        if self.max_num_seqs > MAX_SEQS:
            raise InvalidRequest(
                f"max_num_seqs is {self.max_num_seqs}; at most {MAX_SEQS}", param="max_num_seqs"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """A member and what it said last, with a beat or otherwise: the one record of it."""

    member: Member
    load: EngineLoad
    draining: bool
    heard_s: float
    """When it last said how it is, on the store's clock."""
    adapters: tuple[OfferedAdapter, ...] = ()
    """As of its last beat."""
    is_settling: bool = False
    """It has not been ready yet, by its last beat."""
    unread_adapters: UnreadAdapters = NOTHING_UNREAD
    """By its last beat: it may offer them soon."""

    @property
    def offer(self) -> tuple[bool, tuple[OfferedAdapter, ...], UnreadAdapters]:
        """What may be asked of it, beside its model: nothing new where it drains, and which
        adapters."""
        return self.draining, self.adapters, self.unread_adapters

    @classmethod
    def joined(cls, member: Member, now_s: float) -> MemberState:
        """Of one that has said nothing of its load yet, nor whether it has settled."""
        return cls(
            member=member, load=EngineLoad(), draining=False, heard_s=now_s, is_settling=True
        )


def member_to_wire(member: Member) -> membership_pb2.Member:
    """The names are the same on both sides."""
    values = {item.name: getattr(member, item.name) for item in fields(Member)}
    ranks = [membership_pb2.RankFacts(**asdict(facts)) for facts in member.ranks]
    converted = {"pairing": pairing_to_wire(member.pairing), "ranks": ranks}
    return membership_pb2.Member(**values | converted)


def member_from_wire(message: membership_pb2.Member) -> Member:
    """The inverse of `member_to_wire`, checked. Raises InvalidRequest."""
    values = {item.name: getattr(message, item.name) for item in fields(Member)}
    if message.role not in set(Role):
        raise InvalidRequest(
            f"role is {message.role[:32]!r}; allowed: {', '.join(Role)}", param="role"
        )
    converted = {
        "role": Role(message.role),
        "pairing": pairing_from_wire(message.pairing),
        "ranks": ranks_from_wire(message.ranks),
    }
    member = Member(**values | converted)
    member.check()
    return member


def ranks_from_wire(messages: Iterable[membership_pb2.RankFacts]) -> tuple[RankFacts, ...]:
    """As they were said; Member.check looks at them."""
    return tuple(
        RankFacts(
            rank=facts.rank,
            pid=facts.pid,
            node=facts.node,
            device=facts.device,
            generation=facts.generation,
            kv_heads=tuple(facts.kv_heads),
            weight_bytes=facts.weight_bytes,
            kv_bytes=facts.kv_bytes,
            peak_bytes=facts.peak_bytes,
            loaded_as=facts.loaded_as,
        )
        for facts in messages
    )


def _check_ranks(ranks: tuple[RankFacts, ...]) -> None:
    if len(ranks) > MAX_RANKS:
        raise InvalidRequest(f"{len(ranks)} ranks; at most {MAX_RANKS}", param="ranks")
    for facts in ranks:
        _check_length("ranks.node", facts.node)
        _check_length("ranks.device", facts.device)
        _check_length("ranks.loaded_as", facts.loaded_as)
        if len(facts.kv_heads) > MAX_KV_HEADS:
            raise InvalidRequest(
                f"rank {facts.rank} has {len(facts.kv_heads)} KV heads; at most {MAX_KV_HEADS}",
                param="ranks",
            )


def _check_length(name: str, value: str) -> None:
    if len(value) > MAX_NAME_CHARS:
        raise InvalidRequest(
            f"{name} has {len(value)} characters; at most {MAX_NAME_CHARS}", param=name
        )


def _check_name(name: str, value: str) -> None:
    _check_length(name, value)
    if not _NAME.fullmatch(value):
        raise InvalidRequest(
            f"{name} is {value!r}; it needs letters, digits and . _ : / @ + - only", param=name
        )


def _check_address(name: str, value: str) -> None:
    _check_length(name, value)
    found = _HOST_PORT.fullmatch(value)
    if found is None or not 1 <= int(found[2]) <= 65_535:
        raise InvalidRequest(f"{name} is {value!r}; it must be host:port", param=name)
    if is_wildcard(host_of(value)):
        raise InvalidRequest(
            f"{name} is {value!r}, which is no address of one machine; start the worker with "
            "--advertise-host and the address at which the fleet reaches it",
            param=name,
        )


def _check_endpoint(name: str, value: str) -> None:
    if not value:
        return
    if not value.startswith("tcp://"):
        raise InvalidRequest(f"{name} is {value[:64]!r}; it must be tcp://host:port", param=name)
    _check_address(name, value.removeprefix("tcp://"))


def _check_key(name: str, value: str) -> None:
    """The value is not repeated: it may be a secret."""
    if value and not _KEY.fullmatch(value):
        raise InvalidRequest(f"{name} is no key of ZMQ's, which has 40 letters of Z85", param=name)


def _check_between(name: str, value: int, high: int) -> None:
    if not 1 <= value <= high:
        raise InvalidRequest(f"{name} is {value}; allowed: [1, {high}]", param=name)
