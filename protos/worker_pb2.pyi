from protos import generation_pb2 as _generation_pb2
from protos import handoff_pb2 as _handoff_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LoadAdapterRequest(_message.Message):
    __slots__ = ("name", "path")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class LoadAdapterResponse(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class UnloadAdapterRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UnloadAdapterResponse(_message.Message):
    __slots__ = ("known",)
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    known: bool
    def __init__(self, known: _Optional[bool] = ...) -> None: ...

class CacheReceiver(_message.Message):
    __slots__ = ("worker", "room_tokens")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ROOM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    worker: PrefillTarget
    room_tokens: int
    def __init__(self, worker: _Optional[_Union[PrefillTarget, _Mapping]] = ..., room_tokens: _Optional[int] = ...) -> None: ...

class HandOnRequest(_message.Message):
    __slots__ = ("source", "receivers", "max_bytes")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    RECEIVERS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    source: PrefillTarget
    receivers: _containers.RepeatedCompositeFieldContainer[CacheReceiver]
    max_bytes: int
    def __init__(self, source: _Optional[_Union[PrefillTarget, _Mapping]] = ..., receivers: _Optional[_Iterable[_Union[CacheReceiver, _Mapping]]] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class HandOnReport(_message.Message):
    __slots__ = ("cached_tokens", "receivers", "seconds")
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RECEIVERS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    cached_tokens: int
    receivers: _containers.RepeatedCompositeFieldContainer[ReceivedPrefixes]
    seconds: float
    def __init__(self, cached_tokens: _Optional[int] = ..., receivers: _Optional[_Iterable[_Union[ReceivedPrefixes, _Mapping]]] = ..., seconds: _Optional[float] = ...) -> None: ...

class ReceivedPrefixes(_message.Message):
    __slots__ = ("worker_id", "handed_tokens", "known_tokens", "num_bytes", "problem")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    HANDED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    handed_tokens: int
    known_tokens: int
    num_bytes: int
    problem: str
    def __init__(self, worker_id: _Optional[str] = ..., handed_tokens: _Optional[int] = ..., known_tokens: _Optional[int] = ..., num_bytes: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class TakeOverRequest(_message.Message):
    __slots__ = ("source", "cache_root", "token_ids", "adapter")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CACHE_ROOT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    source: PrefillTarget
    cache_root: bytes
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    adapter: str
    def __init__(self, source: _Optional[_Union[PrefillTarget, _Mapping]] = ..., cache_root: _Optional[bytes] = ..., token_ids: _Optional[_Iterable[int]] = ..., adapter: _Optional[str] = ...) -> None: ...

class TakeOverReport(_message.Message):
    __slots__ = ("handed_tokens", "known_tokens", "num_bytes")
    HANDED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    handed_tokens: int
    known_tokens: int
    num_bytes: int
    def __init__(self, handed_tokens: _Optional[int] = ..., known_tokens: _Optional[int] = ..., num_bytes: _Optional[int] = ...) -> None: ...

class PrefillTarget(_message.Message):
    __slots__ = ("worker_id", "incarnation", "address")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    address: str
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "token_ids", "sampling", "prefill", "cache_root", "timeout_ms", "asked_s", "resume", "first_token_ms", "trace", "adapter", "owner", "prediction", "pool")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    CACHE_ROOT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ASKED_S_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _generation_pb2.SamplingParams
    prefill: _containers.RepeatedCompositeFieldContainer[PrefillTarget]
    cache_root: bytes
    timeout_ms: float
    asked_s: float
    resume: _containers.RepeatedCompositeFieldContainer[_handoff_pb2.BegunChoice]
    first_token_ms: float
    trace: _handoff_pb2.TraceParent
    adapter: str
    owner: bytes
    prediction: _containers.RepeatedScalarFieldContainer[int]
    pool: PoolWish
    def __init__(self, request_id: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_generation_pb2.SamplingParams, _Mapping]] = ..., prefill: _Optional[_Iterable[_Union[PrefillTarget, _Mapping]]] = ..., cache_root: _Optional[bytes] = ..., timeout_ms: _Optional[float] = ..., asked_s: _Optional[float] = ..., resume: _Optional[_Iterable[_Union[_handoff_pb2.BegunChoice, _Mapping]]] = ..., first_token_ms: _Optional[float] = ..., trace: _Optional[_Union[_handoff_pb2.TraceParent, _Mapping]] = ..., adapter: _Optional[str] = ..., owner: _Optional[bytes] = ..., prediction: _Optional[_Iterable[int]] = ..., pool: _Optional[_Union[PoolWish, _Mapping]] = ...) -> None: ...

class PoolWish(_message.Message):
    __slots__ = ("pooling", "dimensions")
    POOLING_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    pooling: str
    dimensions: int
    def __init__(self, pooling: _Optional[str] = ..., dimensions: _Optional[int] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("request_id", "choices")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    choices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[str] = ..., choices: _Optional[_Iterable[int]] = ...) -> None: ...

class WorkerIdentity(_message.Message):
    __slots__ = ("worker_id", "incarnation", "pairing")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PAIRING_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    pairing: _handoff_pb2.Pairing
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., pairing: _Optional[_Union[_handoff_pb2.Pairing, _Mapping]] = ...) -> None: ...

class RouterMessage(_message.Message):
    __slots__ = ("submit", "cancel", "finish", "open")
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    submit: Submit
    cancel: Cancel
    finish: Finish
    open: WorkerIdentity
    def __init__(self, submit: _Optional[_Union[Submit, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ..., open: _Optional[_Union[WorkerIdentity, _Mapping]] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("request_id", "choice", "tokens", "finish_reason")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    choice: int
    tokens: _containers.RepeatedCompositeFieldContainer[_generation_pb2.GeneratedToken]
    finish_reason: _generation_pb2.FinishReason
    def __init__(self, request_id: _Optional[str] = ..., choice: _Optional[int] = ..., tokens: _Optional[_Iterable[_Union[_generation_pb2.GeneratedToken, _Mapping]]] = ..., finish_reason: _Optional[_Union[_generation_pb2.FinishReason, str]] = ...) -> None: ...

class PromptTokens(_message.Message):
    __slots__ = ("request_id", "first_index", "tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    first_index: int
    tokens: _containers.RepeatedCompositeFieldContainer[_generation_pb2.PromptToken]
    def __init__(self, request_id: _Optional[str] = ..., first_index: _Optional[int] = ..., tokens: _Optional[_Iterable[_Union[_generation_pb2.PromptToken, _Mapping]]] = ...) -> None: ...

class PromptStages(_message.Message):
    __slots__ = ("said_ms", "reserved_ms", "asked_ms", "accepted_ms", "offered_ms", "first_block_ms", "last_block_ms", "first_token_ms", "source_queue_ms", "source_prefill_ms", "num_failed_sources")
    SAID_MS_FIELD_NUMBER: _ClassVar[int]
    RESERVED_MS_FIELD_NUMBER: _ClassVar[int]
    ASKED_MS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_MS_FIELD_NUMBER: _ClassVar[int]
    OFFERED_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_BLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_BLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    NUM_FAILED_SOURCES_FIELD_NUMBER: _ClassVar[int]
    said_ms: float
    reserved_ms: float
    asked_ms: float
    accepted_ms: float
    offered_ms: float
    first_block_ms: float
    last_block_ms: float
    first_token_ms: float
    source_queue_ms: float
    source_prefill_ms: float
    num_failed_sources: int
    def __init__(self, said_ms: _Optional[float] = ..., reserved_ms: _Optional[float] = ..., asked_ms: _Optional[float] = ..., accepted_ms: _Optional[float] = ..., offered_ms: _Optional[float] = ..., first_block_ms: _Optional[float] = ..., last_block_ms: _Optional[float] = ..., first_token_ms: _Optional[float] = ..., source_queue_ms: _Optional[float] = ..., source_prefill_ms: _Optional[float] = ..., num_failed_sources: _Optional[int] = ...) -> None: ...

class PromptComputed(_message.Message):
    __slots__ = ("request_id", "cached_tokens", "timing", "stages")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    cached_tokens: int
    timing: _generation_pb2.Timing
    stages: PromptStages
    def __init__(self, request_id: _Optional[str] = ..., cached_tokens: _Optional[int] = ..., timing: _Optional[_Union[_generation_pb2.Timing, _Mapping]] = ..., stages: _Optional[_Union[PromptStages, _Mapping]] = ...) -> None: ...

class Searched(_message.Message):
    __slots__ = ("request_id", "num_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    num_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., num_tokens: _Optional[int] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("request_id", "usage", "timing", "error", "stages")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    usage: _generation_pb2.Usage
    timing: _generation_pb2.Timing
    error: Error
    stages: PromptStages
    def __init__(self, request_id: _Optional[str] = ..., usage: _Optional[_Union[_generation_pb2.Usage, _Mapping]] = ..., timing: _Optional[_Union[_generation_pb2.Timing, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., stages: _Optional[_Union[PromptStages, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class HandoffOutcome(_message.Message):
    __slots__ = ("worker_id", "incarnation", "failed")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    failed: bool
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., failed: _Optional[bool] = ...) -> None: ...

class WorkerFrame(_message.Message):
    __slots__ = ("tokens", "ended", "load", "handoffs", "opened", "prompts", "computed", "searched")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    HANDOFFS_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_FIELD_NUMBER: _ClassVar[int]
    SEARCHED_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[Tokens]
    ended: _containers.RepeatedCompositeFieldContainer[Ended]
    load: EngineLoad
    handoffs: _containers.RepeatedCompositeFieldContainer[HandoffOutcome]
    opened: WorkerIdentity
    prompts: _containers.RepeatedCompositeFieldContainer[PromptTokens]
    computed: _containers.RepeatedCompositeFieldContainer[PromptComputed]
    searched: _containers.RepeatedCompositeFieldContainer[Searched]
    def __init__(self, tokens: _Optional[_Iterable[_Union[Tokens, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[Ended, _Mapping]]] = ..., load: _Optional[_Union[EngineLoad, _Mapping]] = ..., handoffs: _Optional[_Iterable[_Union[HandoffOutcome, _Mapping]]] = ..., opened: _Optional[_Union[WorkerIdentity, _Mapping]] = ..., prompts: _Optional[_Iterable[_Union[PromptTokens, _Mapping]]] = ..., computed: _Optional[_Iterable[_Union[PromptComputed, _Mapping]]] = ..., searched: _Optional[_Iterable[_Union[Searched, _Mapping]]] = ...) -> None: ...

class EngineLoad(_message.Message):
    __slots__ = ("num_running", "num_waiting", "waiting_prefill_tokens", "total_blocks", "free_blocks", "cached_blocks", "active_blocks", "exported_blocks", "receiving_blocks", "num_leases", "prefill_tokens_per_s", "decode_step_ms", "kv_bytes_per_s", "num_preemptions", "step_gap_p99_ms", "waiting_prompts", "decode_row_ms", "prefill_token_ms", "prefill_pair_ms", "home_blocks_left", "prefill_busy_s", "decode_busy_s", "prefilled_tokens", "decoded_tokens", "compiled_grammars", "grammar_compile_s", "grammar_masks", "grammar_mask_s")
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    WAITING_PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CACHED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    EXPORTED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RECEIVING_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NUM_LEASES_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    DECODE_STEP_MS_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    NUM_PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    STEP_GAP_P99_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_PROMPTS_FIELD_NUMBER: _ClassVar[int]
    DECODE_ROW_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_PAIR_MS_FIELD_NUMBER: _ClassVar[int]
    HOME_BLOCKS_LEFT_FIELD_NUMBER: _ClassVar[int]
    PREFILL_BUSY_S_FIELD_NUMBER: _ClassVar[int]
    DECODE_BUSY_S_FIELD_NUMBER: _ClassVar[int]
    PREFILLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DECODED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPILED_GRAMMARS_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_COMPILE_S_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_MASKS_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_MASK_S_FIELD_NUMBER: _ClassVar[int]
    num_running: int
    num_waiting: int
    waiting_prefill_tokens: int
    total_blocks: int
    free_blocks: int
    cached_blocks: int
    active_blocks: int
    exported_blocks: int
    receiving_blocks: int
    num_leases: int
    prefill_tokens_per_s: float
    decode_step_ms: float
    kv_bytes_per_s: float
    num_preemptions: int
    step_gap_p99_ms: float
    waiting_prompts: int
    decode_row_ms: float
    prefill_token_ms: float
    prefill_pair_ms: float
    home_blocks_left: _containers.RepeatedScalarFieldContainer[int]
    prefill_busy_s: float
    decode_busy_s: float
    prefilled_tokens: int
    decoded_tokens: int
    compiled_grammars: int
    grammar_compile_s: float
    grammar_masks: int
    grammar_mask_s: float
    def __init__(self, num_running: _Optional[int] = ..., num_waiting: _Optional[int] = ..., waiting_prefill_tokens: _Optional[int] = ..., total_blocks: _Optional[int] = ..., free_blocks: _Optional[int] = ..., cached_blocks: _Optional[int] = ..., active_blocks: _Optional[int] = ..., exported_blocks: _Optional[int] = ..., receiving_blocks: _Optional[int] = ..., num_leases: _Optional[int] = ..., prefill_tokens_per_s: _Optional[float] = ..., decode_step_ms: _Optional[float] = ..., kv_bytes_per_s: _Optional[float] = ..., num_preemptions: _Optional[int] = ..., step_gap_p99_ms: _Optional[float] = ..., waiting_prompts: _Optional[int] = ..., decode_row_ms: _Optional[float] = ..., prefill_token_ms: _Optional[float] = ..., prefill_pair_ms: _Optional[float] = ..., home_blocks_left: _Optional[_Iterable[int]] = ..., prefill_busy_s: _Optional[float] = ..., decode_busy_s: _Optional[float] = ..., prefilled_tokens: _Optional[int] = ..., decoded_tokens: _Optional[int] = ..., compiled_grammars: _Optional[int] = ..., grammar_compile_s: _Optional[float] = ..., grammar_masks: _Optional[int] = ..., grammar_mask_s: _Optional[float] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("check_invariants",)
    CHECK_INVARIANTS_FIELD_NUMBER: _ClassVar[int]
    check_invariants: bool
    def __init__(self, check_invariants: _Optional[bool] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("worker_id", "incarnation", "role", "state", "load", "kv_transport", "violations", "version", "pid", "engine_pid", "uptime_s", "rank_paces")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    KV_TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_PID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    RANK_PACES_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    role: str
    state: str
    load: EngineLoad
    kv_transport: str
    violations: _containers.RepeatedScalarFieldContainer[str]
    version: str
    pid: int
    engine_pid: int
    uptime_s: float
    rank_paces: _containers.RepeatedCompositeFieldContainer[RankPace]
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., role: _Optional[str] = ..., state: _Optional[str] = ..., load: _Optional[_Union[EngineLoad, _Mapping]] = ..., kv_transport: _Optional[str] = ..., violations: _Optional[_Iterable[str]] = ..., version: _Optional[str] = ..., pid: _Optional[int] = ..., engine_pid: _Optional[int] = ..., uptime_s: _Optional[float] = ..., rank_paces: _Optional[_Iterable[_Union[RankPace, _Mapping]]] = ...) -> None: ...

class RankPace(_message.Message):
    __slots__ = ("rank", "step_collectives_ms", "step_wait_ms", "step_skew_ms")
    RANK_FIELD_NUMBER: _ClassVar[int]
    STEP_COLLECTIVES_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_SKEW_MS_FIELD_NUMBER: _ClassVar[int]
    rank: int
    step_collectives_ms: float
    step_wait_ms: float
    step_skew_ms: float
    def __init__(self, rank: _Optional[int] = ..., step_collectives_ms: _Optional[float] = ..., step_wait_ms: _Optional[float] = ..., step_skew_ms: _Optional[float] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PromoteRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
