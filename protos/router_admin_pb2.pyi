from protos import generation_pb2 as _generation_pb2
from protos import worker_pb2 as _worker_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerStatusRequest(_message.Message):
    __slots__ = ("worker_id", "check_invariants")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    CHECK_INVARIANTS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    check_invariants: bool
    def __init__(self, worker_id: _Optional[str] = ..., check_invariants: _Optional[bool] = ...) -> None: ...

class TryPairRequest(_message.Message):
    __slots__ = ("prefill_worker", "decode_worker", "timeout_s")
    PREFILL_WORKER_FIELD_NUMBER: _ClassVar[int]
    DECODE_WORKER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    prefill_worker: str
    decode_worker: str
    timeout_s: float
    def __init__(self, prefill_worker: _Optional[str] = ..., decode_worker: _Optional[str] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class PairTrial(_message.Message):
    __slots__ = ("given_up", "timing")
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    given_up: bool
    timing: _generation_pb2.Timing
    def __init__(self, given_up: _Optional[bool] = ..., timing: _Optional[_Union[_generation_pb2.Timing, _Mapping]] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MetricsResponse(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class PriceRequest(_message.Message):
    __slots__ = ("chat", "text", "ids", "new_tokens", "max_tokens", "n", "tenant", "cache_salt")
    CHAT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    chat: str
    text: str
    ids: TokenIds
    new_tokens: int
    max_tokens: int
    n: int
    tenant: str
    cache_salt: str
    def __init__(self, chat: _Optional[str] = ..., text: _Optional[str] = ..., ids: _Optional[_Union[TokenIds, _Mapping]] = ..., new_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., n: _Optional[int] = ..., tenant: _Optional[str] = ..., cache_salt: _Optional[str] = ...) -> None: ...

class TraceRequest(_message.Message):
    __slots__ = ("request_id", "slowest", "since_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SLOWEST_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    slowest: int
    since_s: float
    def __init__(self, request_id: _Optional[str] = ..., slowest: _Optional[int] = ..., since_s: _Optional[float] = ...) -> None: ...

class TraceResponse(_message.Message):
    __slots__ = ("traces",)
    TRACES_FIELD_NUMBER: _ClassVar[int]
    traces: _containers.RepeatedCompositeFieldContainer[RequestTrace]
    def __init__(self, traces: _Optional[_Iterable[_Union[RequestTrace, _Mapping]]] = ...) -> None: ...

class RequestTrace(_message.Message):
    __slots__ = ("request_id", "age_s", "arrival", "prompt_tokens", "reason", "usage", "timing", "read_ms", "admitted_ms", "first_token_ms", "ended_ms", "legs", "notes", "trace_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    READ_MS_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    LEGS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    age_s: float
    arrival: Arrival
    prompt_tokens: int
    reason: str
    usage: _generation_pb2.Usage
    timing: _generation_pb2.Timing
    read_ms: float
    admitted_ms: float
    first_token_ms: float
    ended_ms: float
    legs: _containers.RepeatedCompositeFieldContainer[TraceLeg]
    notes: _containers.RepeatedScalarFieldContainer[str]
    trace_id: str
    def __init__(self, request_id: _Optional[str] = ..., age_s: _Optional[float] = ..., arrival: _Optional[_Union[Arrival, _Mapping]] = ..., prompt_tokens: _Optional[int] = ..., reason: _Optional[str] = ..., usage: _Optional[_Union[_generation_pb2.Usage, _Mapping]] = ..., timing: _Optional[_Union[_generation_pb2.Timing, _Mapping]] = ..., read_ms: _Optional[float] = ..., admitted_ms: _Optional[float] = ..., first_token_ms: _Optional[float] = ..., ended_ms: _Optional[float] = ..., legs: _Optional[_Iterable[_Union[TraceLeg, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ..., trace_id: _Optional[str] = ...) -> None: ...

class TraceLeg(_message.Message):
    __slots__ = ("decode_worker", "prefill_worker", "sent_ms", "computed_ms", "first_token_ms", "ended_ms", "end", "stages")
    DECODE_WORKER_FIELD_NUMBER: _ClassVar[int]
    PREFILL_WORKER_FIELD_NUMBER: _ClassVar[int]
    SENT_MS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    decode_worker: str
    prefill_worker: str
    sent_ms: float
    computed_ms: float
    first_token_ms: float
    ended_ms: float
    end: str
    stages: _worker_pb2.PromptStages
    def __init__(self, decode_worker: _Optional[str] = ..., prefill_worker: _Optional[str] = ..., sent_ms: _Optional[float] = ..., computed_ms: _Optional[float] = ..., first_token_ms: _Optional[float] = ..., ended_ms: _Optional[float] = ..., end: _Optional[str] = ..., stages: _Optional[_Union[_worker_pb2.PromptStages, _Mapping]] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("decisions",)
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[Decision]
    def __init__(self, decisions: _Optional[_Iterable[_Union[Decision, _Mapping]]] = ...) -> None: ...

class Decision(_message.Message):
    __slots__ = ("request_id", "prompt_tokens", "reason", "candidates", "workers", "notes", "usage", "timing", "arrival", "foretold")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_FIELD_NUMBER: _ClassVar[int]
    FORETOLD_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    prompt_tokens: int
    reason: str
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerAtDecision]
    notes: _containers.RepeatedScalarFieldContainer[str]
    usage: _generation_pb2.Usage
    timing: _generation_pb2.Timing
    arrival: Arrival
    foretold: _generation_pb2.Timing
    def __init__(self, request_id: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., reason: _Optional[str] = ..., candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[WorkerAtDecision, _Mapping]]] = ..., notes: _Optional[_Iterable[str]] = ..., usage: _Optional[_Union[_generation_pb2.Usage, _Mapping]] = ..., timing: _Optional[_Union[_generation_pb2.Timing, _Mapping]] = ..., arrival: _Optional[_Union[Arrival, _Mapping]] = ..., foretold: _Optional[_Union[_generation_pb2.Timing, _Mapping]] = ...) -> None: ...

class Arrival(_message.Message):
    __slots__ = ("tenant", "priority", "waited", "num_before", "num_waiting", "line_ms", "lacked", "end", "error")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    NUM_BEFORE_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    LINE_MS_FIELD_NUMBER: _ClassVar[int]
    LACKED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    priority: str
    waited: bool
    num_before: float
    num_waiting: int
    line_ms: float
    lacked: str
    end: str
    error: str
    def __init__(self, tenant: _Optional[str] = ..., priority: _Optional[str] = ..., waited: _Optional[bool] = ..., num_before: _Optional[float] = ..., num_waiting: _Optional[int] = ..., line_ms: _Optional[float] = ..., lacked: _Optional[str] = ..., end: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("decode_worker", "prefill_worker", "chosen", "total_ms", "queue_ms", "prefill_ms", "transfer_ms", "handoff_ms", "interference_ms", "decode_ms", "memory_ms")
    DECODE_WORKER_FIELD_NUMBER: _ClassVar[int]
    PREFILL_WORKER_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_MS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_MS_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_MS_FIELD_NUMBER: _ClassVar[int]
    INTERFERENCE_MS_FIELD_NUMBER: _ClassVar[int]
    DECODE_MS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MS_FIELD_NUMBER: _ClassVar[int]
    decode_worker: str
    prefill_worker: str
    chosen: bool
    total_ms: float
    queue_ms: float
    prefill_ms: float
    transfer_ms: float
    handoff_ms: float
    interference_ms: float
    decode_ms: float
    memory_ms: float
    def __init__(self, decode_worker: _Optional[str] = ..., prefill_worker: _Optional[str] = ..., chosen: _Optional[bool] = ..., total_ms: _Optional[float] = ..., queue_ms: _Optional[float] = ..., prefill_ms: _Optional[float] = ..., transfer_ms: _Optional[float] = ..., handoff_ms: _Optional[float] = ..., interference_ms: _Optional[float] = ..., decode_ms: _Optional[float] = ..., memory_ms: _Optional[float] = ...) -> None: ...

class WorkerAtDecision(_message.Message):
    __slots__ = ("worker_id", "matched_tokens", "waiting_tokens", "num_running")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    MATCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WAITING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    matched_tokens: int
    waiting_tokens: int
    num_running: int
    def __init__(self, worker_id: _Optional[str] = ..., matched_tokens: _Optional[int] = ..., waiting_tokens: _Optional[int] = ..., num_running: _Optional[int] = ...) -> None: ...

class OptionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OptionsResponse(_message.Message):
    __slots__ = ("options", "version")
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    options: _containers.RepeatedCompositeFieldContainer[OptionValue]
    version: str
    def __init__(self, options: _Optional[_Iterable[_Union[OptionValue, _Mapping]]] = ..., version: _Optional[str] = ...) -> None: ...

class OptionValue(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
