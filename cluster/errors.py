"""The errors of a fleet: one tree, one table.

    SplitserveError
    |- InvalidRequest              the client's: 400
    |  |- ContextTooLong           prompt + completion over the limit
    |  |- UnknownModel             404
    |  |- GrammarFailed            a grammar that no answer can be given by
    |  |- GrammarsUnsupported      the model's tokenizer can follow none
    |  |- AdapterRefused           an adapter's files or settings are not supported
    |  |- UnknownPath              404: no such endpoint
    |  '- MethodNotAllowed         405
    |- Unauthenticated             401: no API key, or none that is known
    |- NotAllowed                  403: the key is not for this
    |- RequestTooLarge             413
    |  '- HeadTooLarge             431
    |- SlowRequest                 408: the client did not finish sending
    |- NotReady                    429 / 503, with a Retry-After
    |  |- QueueFull                429
    |  |  '- Hopeless              429: the wait would outlast the deadline
    |  |- RateLimited              429: the key has had its share
    |  |  '- BudgetSpent           429: and of tokens all of this period
    |  |- NoWorker                 nobody can serve this now
    |  |- AdapterGone              the worker has no such adapter, or has no room for it
    |  |- AdapterUnread            an adapter's files could not be read this time, or yet
    |  |- PlaceLost                the cluster below a fleet does not answer
    |  '- Draining
    |- DeadlineExceeded            504
    |- NotResumable                404: the rest of an answer that is not kept here
    |- ResumedElsewhere            409: another connection gets the rest of this answer
    |- Cancelled                   the client left: 499
    |- WorkerLost                  the decode worker died: 502
    |  |- RequestGivenUp           and so did another: it may be the request's doing
    |  |- WrongWorker              another process answers at its address
    |  |- LoginLost                an API server does not know who asks: somebody has to log in
    |  '- RankLost                 a part of its replica died or stands still
    |     '- WrongGeneration       a rank belongs to a group that is gone
    |- WrongToken                  a process of another fleet calls, or a stranger
    |- IdTaken                     another live process has this worker's id
    |- NoProgress                  a worker is there and does nothing
    |- PairingMismatch             two workers do not fit together
    |- TransferFailed              KV could not be read or did not verify
    |- OutOfBlocks                 a request can never fit in the pool
    |- ModelError                  a checkpoint cannot be had or read
    |  |- SourceUnreachable / ChecksumMismatch / UnsupportedModel / DiskFull / BadCheckpoint
    |- ConfigError                 an option is wrong
    '- InternalError               ours: 500

A message gives the value, the limit and the remedy. `status_of` maps a class to its gRPC status,
HTTP status, OpenAI error type and stable code; nothing else in the project maps errors.
"""

from __future__ import annotations

from cluster.error_root import ErrorStatus as ErrorStatus
from cluster.error_root import LoginLost as LoginLost
from cluster.error_root import RankLost as RankLost
from cluster.error_root import SplitserveError as SplitserveError
from cluster.error_root import WorkerLost as WorkerLost


class InvalidRequest(SplitserveError):
    """The request itself is wrong; sending it again will not help."""


class ContextTooLong(InvalidRequest):
    """Prompt and completion do not fit in the model's context."""


class GrammarFailed(InvalidRequest):
    """The answer's grammar cannot be followed, or not within its budget."""


class GrammarsUnsupported(InvalidRequest):
    """No answer of this model can be given by a grammar: its tokenizer cannot follow one."""


class AdapterRefused(InvalidRequest):
    """An adapter that cannot be loaded: the message names what is not supported, or wrong."""


class UnknownModel(InvalidRequest):
    """The model that was asked for is not served here."""


class UnknownPath(InvalidRequest):
    """There is no endpoint at this path."""


class MethodNotAllowed(InvalidRequest):
    """The endpoint does not answer this HTTP method."""


class Unauthenticated(SplitserveError):
    """Nobody that is known here asks."""


class NotAllowed(SplitserveError):
    """Who asks is known, and may not have this."""


class RequestTooLarge(SplitserveError):
    """The body of the request is larger than the limit."""


class HeadTooLarge(RequestTooLarge):
    """The head of the request has too many bytes or headers."""


class SlowRequest(SplitserveError):
    """The client took too long to send its request."""


class NotReady(SplitserveError):
    """Not now; later may work."""


class QueueFull(NotReady):
    """The bounded queue has no place."""


class Hopeless(QueueFull):
    """The first token would come after the deadline; `details` say what it would take."""


class RateLimited(NotReady):
    """Who asks has asked as often as it may."""


class BudgetSpent(RateLimited):
    """Who asks has had as many tokens as it may in this period."""


class NoWorker(NotReady):
    """No worker is alive that could serve the request."""


class AdapterGone(NotReady):
    """This worker does not have the adapter that a request is for; another one may."""


class AdapterUnread(NotReady):
    """An adapter's files could not be read this time, or not yet: nothing is known to be wrong."""


class PlaceLost(NotReady):
    """What places a fleet's processes is gone: none can be started, or told to end, there."""


class Draining(NotReady):
    """The process is shutting down and takes no new work."""


class DeadlineExceeded(SplitserveError):
    """The request's deadline passed."""


class NotResumable(SplitserveError):
    """Nobody here knows the answer that a client wants the rest of, or that client may not."""


class ResumedElsewhere(SplitserveError):
    """Another connection has asked for the rest of this answer, and gets it."""


class Cancelled(SplitserveError):
    """The client went away."""


class RequestGivenUp(WorkerLost):
    """Two workers were lost under the request; the message names what the last one died of."""


class WrongWorker(WorkerLost):
    """Another process than the one that was meant answers; the message names both."""


class WorkerSilent(WorkerLost):
    """It takes connections and gives no whole answer in time: it is busy, or it stands."""


class WrongGeneration(RankLost):
    """A rank belongs to another generation of its group; the message names both."""


class WrongToken(SplitserveError):
    """A caller among processes of a fleet does not show its join token."""


class IdTaken(SplitserveError):
    """A worker cannot join under an id that another live process has; the message names both."""


class NoProgress(SplitserveError):
    """A worker answers, or at least does not break its connection, and gets nothing done."""


class PairingMismatch(SplitserveError):
    """Two workers differ in something that a KV block depends on; the message names both values."""


class TransferFailed(SplitserveError):
    """KV blocks could not be read, or did not verify."""


class OutOfBlocks(SplitserveError):
    """The request needs more KV blocks than the pool has."""


class ModelError(SplitserveError):
    """A checkpoint cannot be had or read."""


class SourceUnreachable(ModelError):
    """The place that a model comes from does not answer."""


class ChecksumMismatch(ModelError):
    """A downloaded file is truncated or altered."""


class UnsupportedModel(ModelError):
    """An architecture or option that the engine does not implement."""


class BadCheckpoint(ModelError):
    """A file of the checkpoint is missing, truncated or inconsistent."""


class DiskFull(ModelError):
    """The model cache has no room."""


class ConfigError(SplitserveError):
    """An option is unknown or out of range."""


class InternalError(SplitserveError):
    """A bug of ours, reported without its details."""


_CLIENTS = "invalid_request_error"
_TABLE: dict[type[SplitserveError], ErrorStatus] = {
    InvalidRequest: ErrorStatus("invalid_request", 400, "INVALID_ARGUMENT", _CLIENTS),
    ContextTooLong: ErrorStatus("context_length_exceeded", 400, "INVALID_ARGUMENT", _CLIENTS),
    GrammarFailed: ErrorStatus("grammar_failed", 400, "INVALID_ARGUMENT", _CLIENTS),
    GrammarsUnsupported: ErrorStatus("grammars_unsupported", 400, "INVALID_ARGUMENT", _CLIENTS),
    AdapterRefused: ErrorStatus("adapter_refused", 400, "INVALID_ARGUMENT", _CLIENTS),
    UnknownModel: ErrorStatus("model_not_found", 404, "NOT_FOUND", _CLIENTS),
    UnknownPath: ErrorStatus("unknown_path", 404, "NOT_FOUND", _CLIENTS),
    MethodNotAllowed: ErrorStatus("method_not_allowed", 405, "UNIMPLEMENTED", _CLIENTS),
    Unauthenticated: ErrorStatus("invalid_api_key", 401, "UNAUTHENTICATED", _CLIENTS),
    NotAllowed: ErrorStatus("not_allowed", 403, "PERMISSION_DENIED", _CLIENTS),
    SlowRequest: ErrorStatus("request_timeout", 408, "DEADLINE_EXCEEDED", _CLIENTS),
    RequestTooLarge: ErrorStatus("request_too_large", 413, "RESOURCE_EXHAUSTED", _CLIENTS),
    HeadTooLarge: ErrorStatus("head_too_large", 431, "RESOURCE_EXHAUSTED", _CLIENTS),
    NotReady: ErrorStatus("not_ready", 503, "UNAVAILABLE", "server_error"),
    QueueFull: ErrorStatus("queue_full", 429, "RESOURCE_EXHAUSTED", "rate_limit_error"),
    Hopeless: ErrorStatus("deadline_unreachable", 429, "RESOURCE_EXHAUSTED", "rate_limit_error"),
    RateLimited: ErrorStatus("rate_limit_exceeded", 429, "RESOURCE_EXHAUSTED", "rate_limit_error"),
    BudgetSpent: ErrorStatus("insufficient_quota", 429, "RESOURCE_EXHAUSTED", "insufficient_quota"),
    NoWorker: ErrorStatus("no_worker", 503, "UNAVAILABLE", "server_error"),
    AdapterGone: ErrorStatus("adapter_gone", 503, "UNAVAILABLE", "server_error"),
    AdapterUnread: ErrorStatus("adapter_unread", 503, "UNAVAILABLE", "server_error"),
    Draining: ErrorStatus("draining", 503, "UNAVAILABLE", "server_error"),
    DeadlineExceeded: ErrorStatus("deadline_exceeded", 504, "DEADLINE_EXCEEDED", "server_error"),
    NotResumable: ErrorStatus("not_resumable", 404, "NOT_FOUND", _CLIENTS),
    ResumedElsewhere: ErrorStatus("resumed_elsewhere", 409, "ABORTED", _CLIENTS),
    Cancelled: ErrorStatus("cancelled", 499, "CANCELLED", "server_error"),
    WorkerLost: ErrorStatus("worker_lost", 502, "UNAVAILABLE", "server_error"),
    RequestGivenUp: ErrorStatus("request_given_up", 502, "INTERNAL", "server_error"),
    WrongWorker: ErrorStatus("wrong_worker", 502, "FAILED_PRECONDITION", "server_error"),
    RankLost: ErrorStatus("rank_lost", 502, "UNAVAILABLE", "server_error"),
    WrongGeneration: ErrorStatus("wrong_generation", 502, "FAILED_PRECONDITION", "server_error"),
    WrongToken: ErrorStatus("wrong_token", 401, "UNAUTHENTICATED", "server_error"),
    IdTaken: ErrorStatus("id_taken", 409, "ALREADY_EXISTS", "server_error"),
    NoProgress: ErrorStatus("no_progress", 504, "UNAVAILABLE", "server_error"),
    PairingMismatch: ErrorStatus("pairing_mismatch", 503, "FAILED_PRECONDITION", "server_error"),
    TransferFailed: ErrorStatus("kv_transfer_failed", 502, "UNAVAILABLE", "server_error"),
    OutOfBlocks: ErrorStatus("out_of_blocks", 400, "INVALID_ARGUMENT", _CLIENTS),
    ModelError: ErrorStatus("model_error", 500, "INTERNAL", "server_error"),
    SourceUnreachable: ErrorStatus("source_unreachable", 500, "UNAVAILABLE", "server_error"),
    ChecksumMismatch: ErrorStatus("checksum_mismatch", 500, "DATA_LOSS", "server_error"),
    UnsupportedModel: ErrorStatus("unsupported_model", 500, "UNIMPLEMENTED", "server_error"),
    BadCheckpoint: ErrorStatus("bad_checkpoint", 500, "DATA_LOSS", "server_error"),
    DiskFull: ErrorStatus("disk_full", 500, "RESOURCE_EXHAUSTED", "server_error"),
    ConfigError: ErrorStatus("config_error", 500, "INVALID_ARGUMENT", "server_error"),
    InternalError: ErrorStatus("internal_error", 500, "INTERNAL", "server_error"),
}
_BY_CODE = {status.code: cls for cls, status in _TABLE.items()}


def status_of(error: SplitserveError) -> ErrorStatus:
    """The row of the nearest class in the table."""
    known = (_TABLE[cls] for cls in type(error).__mro__ if cls in _TABLE)
    return next(known, _TABLE[InternalError])


def from_code(code: str, message: str) -> SplitserveError:
    """The error that travelled as (code, message); an unknown code becomes an InternalError."""
    return _BY_CODE.get(code, InternalError)(message)
