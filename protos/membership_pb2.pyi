from protos import handoff_pb2 as _handoff_pb2
from protos import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Member(_message.Message):
    __slots__ = ("worker_id", "incarnation", "role", "address", "kv_events_address", "kv_replay_address", "model", "max_context_tokens", "pairing", "kv_transport", "version", "pid", "prefix_cache_off", "ranks", "max_num_seqs", "kv_events_key", "kv_reader_secret", "pooling", "pool", "draws")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    KV_EVENTS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    KV_REPLAY_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAIRING_FIELD_NUMBER: _ClassVar[int]
    KV_TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_CACHE_OFF_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    KV_EVENTS_KEY_FIELD_NUMBER: _ClassVar[int]
    KV_READER_SECRET_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    role: str
    address: str
    kv_events_address: str
    kv_replay_address: str
    model: str
    max_context_tokens: int
    pairing: _handoff_pb2.Pairing
    kv_transport: str
    version: str
    pid: int
    prefix_cache_off: bool
    ranks: _containers.RepeatedCompositeFieldContainer[RankFacts]
    max_num_seqs: int
    kv_events_key: str
    kv_reader_secret: str
    pooling: str
    pool: str
    draws: int
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., role: _Optional[str] = ..., address: _Optional[str] = ..., kv_events_address: _Optional[str] = ..., kv_replay_address: _Optional[str] = ..., model: _Optional[str] = ..., max_context_tokens: _Optional[int] = ..., pairing: _Optional[_Union[_handoff_pb2.Pairing, _Mapping]] = ..., kv_transport: _Optional[str] = ..., version: _Optional[str] = ..., pid: _Optional[int] = ..., prefix_cache_off: _Optional[bool] = ..., ranks: _Optional[_Iterable[_Union[RankFacts, _Mapping]]] = ..., max_num_seqs: _Optional[int] = ..., kv_events_key: _Optional[str] = ..., kv_reader_secret: _Optional[str] = ..., pooling: _Optional[str] = ..., pool: _Optional[str] = ..., draws: _Optional[int] = ...) -> None: ...

class RankFacts(_message.Message):
    __slots__ = ("rank", "pid", "node", "device", "generation", "kv_heads", "weight_bytes", "kv_bytes", "peak_bytes", "loaded_as")
    RANK_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KV_HEADS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOADED_AS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    pid: int
    node: str
    device: str
    generation: int
    kv_heads: _containers.RepeatedScalarFieldContainer[int]
    weight_bytes: int
    kv_bytes: int
    peak_bytes: int
    loaded_as: str
    def __init__(self, rank: _Optional[int] = ..., pid: _Optional[int] = ..., node: _Optional[str] = ..., device: _Optional[str] = ..., generation: _Optional[int] = ..., kv_heads: _Optional[_Iterable[int]] = ..., weight_bytes: _Optional[int] = ..., kv_bytes: _Optional[int] = ..., peak_bytes: _Optional[int] = ..., loaded_as: _Optional[str] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("member", "hold", "beat")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    member: Member
    hold: WorkerHold
    beat: BeatRequest
    def __init__(self, member: _Optional[_Union[Member, _Mapping]] = ..., hold: _Optional[_Union[WorkerHold, _Mapping]] = ..., beat: _Optional[_Union[BeatRequest, _Mapping]] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ("beat_interval_s", "lease_s", "hold")
    BEAT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    beat_interval_s: float
    lease_s: float
    hold: WorkerHold
    def __init__(self, beat_interval_s: _Optional[float] = ..., lease_s: _Optional[float] = ..., hold: _Optional[_Union[WorkerHold, _Mapping]] = ...) -> None: ...

class WorkerHold(_message.Message):
    __slots__ = ("kind", "number")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    kind: str
    number: int
    def __init__(self, kind: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class BeatRequest(_message.Message):
    __slots__ = ("worker_id", "incarnation", "load", "draining", "kv_transport", "hold", "adapters", "is_settling", "unread_adapters")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    KV_TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    IS_SETTLING_FIELD_NUMBER: _ClassVar[int]
    UNREAD_ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    load: _worker_pb2.EngineLoad
    draining: bool
    kv_transport: str
    hold: WorkerHold
    adapters: _containers.RepeatedCompositeFieldContainer[OfferedAdapter]
    is_settling: bool
    unread_adapters: UnreadAdapters
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., load: _Optional[_Union[_worker_pb2.EngineLoad, _Mapping]] = ..., draining: _Optional[bool] = ..., kv_transport: _Optional[str] = ..., hold: _Optional[_Union[WorkerHold, _Mapping]] = ..., adapters: _Optional[_Iterable[_Union[OfferedAdapter, _Mapping]]] = ..., is_settling: _Optional[bool] = ..., unread_adapters: _Optional[_Union[UnreadAdapters, _Mapping]] = ...) -> None: ...

class UnreadAdapters(_message.Message):
    __slots__ = ("names", "may_be_any")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    MAY_BE_ANY_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    may_be_any: bool
    def __init__(self, names: _Optional[_Iterable[str]] = ..., may_be_any: _Optional[bool] = ...) -> None: ...

class OfferedAdapter(_message.Message):
    __slots__ = ("name", "digest", "resident")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    digest: str
    resident: bool
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[str] = ..., resident: _Optional[bool] = ...) -> None: ...

class BeatResponse(_message.Message):
    __slots__ = ("known", "hold", "settles_later")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    SETTLES_LATER_FIELD_NUMBER: _ClassVar[int]
    known: bool
    hold: WorkerHold
    settles_later: str
    def __init__(self, known: _Optional[bool] = ..., hold: _Optional[_Union[WorkerHold, _Mapping]] = ..., settles_later: _Optional[str] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("worker_id", "incarnation", "was_asked")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    WAS_ASKED_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    was_asked: bool
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., was_asked: _Optional[bool] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SpareWorker(_message.Message):
    __slots__ = ("worker_id", "role", "address", "pid")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    role: str
    address: str
    pid: int
    def __init__(self, worker_id: _Optional[str] = ..., role: _Optional[str] = ..., address: _Optional[str] = ..., pid: _Optional[int] = ...) -> None: ...

class RestartCount(_message.Message):
    __slots__ = ("pool", "cause", "count")
    POOL_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    pool: str
    cause: str
    count: int
    def __init__(self, pool: _Optional[str] = ..., cause: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class SupervisorReport(_message.Message):
    __slots__ = ("spares", "restarts", "pools", "answers")
    SPARES_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    spares: _containers.RepeatedCompositeFieldContainer[SpareWorker]
    restarts: _containers.RepeatedCompositeFieldContainer[RestartCount]
    pools: _containers.RepeatedCompositeFieldContainer[PoolState]
    answers: _containers.RepeatedCompositeFieldContainer[ScaleAnswer]
    def __init__(self, spares: _Optional[_Iterable[_Union[SpareWorker, _Mapping]]] = ..., restarts: _Optional[_Iterable[_Union[RestartCount, _Mapping]]] = ..., pools: _Optional[_Iterable[_Union[PoolState, _Mapping]]] = ..., answers: _Optional[_Iterable[_Union[ScaleAnswer, _Mapping]]] = ...) -> None: ...

class SupervisorReportTaken(_message.Message):
    __slots__ = ("orders",)
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    orders: _containers.RepeatedCompositeFieldContainer[ScaleOrder]
    def __init__(self, orders: _Optional[_Iterable[_Union[ScaleOrder, _Mapping]]] = ...) -> None: ...

class PoolState(_message.Message):
    __slots__ = ("name", "wanted", "present", "ready", "generation", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    wanted: int
    present: int
    ready: int
    generation: int
    problem: str
    def __init__(self, name: _Optional[str] = ..., wanted: _Optional[int] = ..., present: _Optional[int] = ..., ready: _Optional[int] = ..., generation: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class ScaleOrder(_message.Message):
    __slots__ = ("pool", "size", "leaving", "dry_run", "number", "handed_on", "by")
    POOL_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HANDED_ON_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    pool: str
    size: int
    leaving: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    number: int
    handed_on: bool
    by: str
    def __init__(self, pool: _Optional[str] = ..., size: _Optional[int] = ..., leaving: _Optional[_Iterable[str]] = ..., dry_run: _Optional[bool] = ..., number: _Optional[int] = ..., handed_on: _Optional[bool] = ..., by: _Optional[str] = ...) -> None: ...

class ScaleAnswer(_message.Message):
    __slots__ = ("number", "reason", "message", "pool", "size_before", "size", "starting", "leaving", "num_gpus")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    SIZE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    STARTING_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    NUM_GPUS_FIELD_NUMBER: _ClassVar[int]
    number: int
    reason: str
    message: str
    pool: str
    size_before: int
    size: int
    starting: _containers.RepeatedScalarFieldContainer[str]
    leaving: _containers.RepeatedScalarFieldContainer[str]
    num_gpus: int
    def __init__(self, number: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., pool: _Optional[str] = ..., size_before: _Optional[int] = ..., size: _Optional[int] = ..., starting: _Optional[_Iterable[str]] = ..., leaving: _Optional[_Iterable[str]] = ..., num_gpus: _Optional[int] = ...) -> None: ...

class HoldOrder(_message.Message):
    __slots__ = ("worker_id", "kind", "dry_run", "force")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    kind: str
    dry_run: bool
    force: bool
    def __init__(self, worker_id: _Optional[str] = ..., kind: _Optional[str] = ..., dry_run: _Optional[bool] = ..., force: _Optional[bool] = ...) -> None: ...

class HoldAnswer(_message.Message):
    __slots__ = ("reason", "message", "worker_id", "role", "kind_before", "kind", "num_requests", "cached_tokens", "others")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    KIND_BEFORE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUM_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    worker_id: str
    role: str
    kind_before: str
    kind: str
    num_requests: int
    cached_tokens: int
    others: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., worker_id: _Optional[str] = ..., role: _Optional[str] = ..., kind_before: _Optional[str] = ..., kind: _Optional[str] = ..., num_requests: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., others: _Optional[_Iterable[str]] = ...) -> None: ...

class HandOnOrder(_message.Message):
    __slots__ = ("worker_id", "dry_run", "max_bytes", "receivers")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVERS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    dry_run: bool
    max_bytes: int
    receivers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, worker_id: _Optional[str] = ..., dry_run: _Optional[bool] = ..., max_bytes: _Optional[int] = ..., receivers: _Optional[_Iterable[str]] = ...) -> None: ...

class HandOnAnswer(_message.Message):
    __slots__ = ("reason", "message", "report")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    report: _worker_pb2.HandOnReport
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., report: _Optional[_Union[_worker_pb2.HandOnReport, _Mapping]] = ...) -> None: ...

class AdapterAnswer(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[AdapterOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[AdapterOutcome, _Mapping]]] = ...) -> None: ...

class AdapterOutcome(_message.Message):
    __slots__ = ("worker_id", "digest", "code", "message")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    digest: str
    code: str
    message: str
    def __init__(self, worker_id: _Optional[str] = ..., digest: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class MembersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MemberState(_message.Message):
    __slots__ = ("member", "load", "beat_age_s", "state", "num_in_flight", "indexed_blocks", "hold", "adapters", "is_drained", "settles_later")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    BEAT_AGE_S_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NUM_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    INDEXED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINED_FIELD_NUMBER: _ClassVar[int]
    SETTLES_LATER_FIELD_NUMBER: _ClassVar[int]
    member: Member
    load: _worker_pb2.EngineLoad
    beat_age_s: float
    state: str
    num_in_flight: int
    indexed_blocks: int
    hold: str
    adapters: _containers.RepeatedCompositeFieldContainer[OfferedAdapter]
    is_drained: bool
    settles_later: str
    def __init__(self, member: _Optional[_Union[Member, _Mapping]] = ..., load: _Optional[_Union[_worker_pb2.EngineLoad, _Mapping]] = ..., beat_age_s: _Optional[float] = ..., state: _Optional[str] = ..., num_in_flight: _Optional[int] = ..., indexed_blocks: _Optional[int] = ..., hold: _Optional[str] = ..., adapters: _Optional[_Iterable[_Union[OfferedAdapter, _Mapping]]] = ..., is_drained: _Optional[bool] = ..., settles_later: _Optional[str] = ...) -> None: ...

class MembersResponse(_message.Message):
    __slots__ = ("members", "num_queued", "num_in_flight", "uptime_s", "version", "spares", "restarts", "given_up", "routers", "pools", "pairings")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    NUM_QUEUED_FIELD_NUMBER: _ClassVar[int]
    NUM_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SPARES_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    ROUTERS_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    PAIRINGS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[MemberState]
    num_queued: int
    num_in_flight: int
    uptime_s: float
    version: str
    spares: _containers.RepeatedCompositeFieldContainer[SpareWorker]
    restarts: _containers.RepeatedCompositeFieldContainer[RestartCount]
    given_up: str
    routers: _containers.RepeatedCompositeFieldContainer[RouterState]
    pools: _containers.RepeatedCompositeFieldContainer[PoolState]
    pairings: _containers.RepeatedCompositeFieldContainer[PairingState]
    def __init__(self, members: _Optional[_Iterable[_Union[MemberState, _Mapping]]] = ..., num_queued: _Optional[int] = ..., num_in_flight: _Optional[int] = ..., uptime_s: _Optional[float] = ..., version: _Optional[str] = ..., spares: _Optional[_Iterable[_Union[SpareWorker, _Mapping]]] = ..., restarts: _Optional[_Iterable[_Union[RestartCount, _Mapping]]] = ..., given_up: _Optional[str] = ..., routers: _Optional[_Iterable[_Union[RouterState, _Mapping]]] = ..., pools: _Optional[_Iterable[_Union[PoolState, _Mapping]]] = ..., pairings: _Optional[_Iterable[_Union[PairingState, _Mapping]]] = ...) -> None: ...

class PairingState(_message.Message):
    __slots__ = ("digest", "model_digest", "num_prefill", "num_decode", "is_served", "lacks")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NUM_PREFILL_FIELD_NUMBER: _ClassVar[int]
    NUM_DECODE_FIELD_NUMBER: _ClassVar[int]
    IS_SERVED_FIELD_NUMBER: _ClassVar[int]
    LACKS_FIELD_NUMBER: _ClassVar[int]
    digest: str
    model_digest: str
    num_prefill: int
    num_decode: int
    is_served: bool
    lacks: str
    def __init__(self, digest: _Optional[str] = ..., model_digest: _Optional[str] = ..., num_prefill: _Optional[int] = ..., num_decode: _Optional[int] = ..., is_served: _Optional[bool] = ..., lacks: _Optional[str] = ...) -> None: ...

class RouterState(_message.Message):
    __slots__ = ("name", "num_in_flight", "index_digest", "load_digest", "doubted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    INDEX_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LOAD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DOUBTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_in_flight: int
    index_digest: int
    load_digest: int
    doubted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., num_in_flight: _Optional[int] = ..., index_digest: _Optional[int] = ..., load_digest: _Optional[int] = ..., doubted: _Optional[_Iterable[str]] = ...) -> None: ...
