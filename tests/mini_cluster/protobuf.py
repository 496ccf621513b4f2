"""Objects that come over the wire as protobuf in Kubernetes' envelope.

helm sends its release Secrets so, and kubectl what it makes itself from words. The envelope is four
bytes and an `Unknown` (k8s.io/apimachinery/pkg/runtime/generated.proto). Of the messages inside,
those are described here that the two send; answers are JSON, which both accept.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, Message

from tests.mini_cluster.history import Object
from tests.mini_cluster.metadata import timestamp
from tests.mini_cluster.refusals import Refusal, bad_request

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_PACKAGE = "mini_cluster"

# message: field=number:type; * is repeated, {} a map from strings
_MESSAGES = """
TypeMeta apiVersion=1:string kind=2:string
Unknown typeMeta=1:TypeMeta raw=2:bytes
Time seconds=1:int64 nanos=2:int32
OwnerReference kind=1:string name=3:string uid=4:string apiVersion=5:string controller=6:bool
ObjectMeta name=1:string generateName=2:string namespace=3:string uid=5:string \
resourceVersion=6:string generation=7:int64 creationTimestamp=8:Time labels=11:{}string \
annotations=12:{}string ownerReferences=13:*OwnerReference finalizers=14:*string
Secret metadata=1:ObjectMeta data=2:{}bytes type=3:string stringData=4:{}string immutable=5:bool
Preconditions uid=1:string resourceVersion=2:string
DeleteOptions gracePeriodSeconds=1:int64 preconditions=2:Preconditions orphanDependents=3:bool \
propagationPolicy=4:string dryRun=5:*string
Eviction metadata=1:ObjectMeta deleteOptions=2:DeleteOptions
Namespace metadata=1:ObjectMeta
ServiceAccount metadata=1:ObjectMeta automountServiceAccountToken=4:bool
ConfigMap metadata=1:ObjectMeta data=2:{}string binaryData=3:{}bytes immutable=4:bool
PolicyRule verbs=1:*string apiGroups=2:*string resources=3:*string resourceNames=4:*string
Role metadata=1:ObjectMeta rules=2:*PolicyRule
ClusterRole metadata=1:ObjectMeta rules=2:*PolicyRule
Subject kind=1:string apiGroup=2:string name=3:string namespace=4:string
RoleRef apiGroup=1:string kind=2:string name=3:string
RoleBinding metadata=1:ObjectMeta subjects=2:*Subject roleRef=3:RoleRef
ClusterRoleBinding metadata=1:ObjectMeta subjects=2:*Subject roleRef=3:RoleRef
ResourceAttributes namespace=1:string verb=2:string group=3:string version=4:string \
resource=5:string subresource=6:string name=7:string
AccessReviewSpec resourceAttributes=1:ResourceAttributes
SelfSubjectAccessReview metadata=1:ObjectMeta spec=2:AccessReviewSpec
SelfSubjectReview metadata=1:ObjectMeta
TokenRequestSpec audiences=1:*string expirationSeconds=4:int64
TokenRequest metadata=1:ObjectMeta spec=2:TokenRequestSpec
"""
_PARTS = ("metadata", "deleteOptions", "spec")
_NUMBERS = {"generation", "gracePeriodSeconds", "expirationSeconds"}
_SCALARS = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
}


def decoded(body: bytes) -> Object:
    """As the object would be in JSON. Refusal 415 for a kind that is not described here."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body is not Kubernetes' protobuf: its first four bytes are others")
    envelope: Any = _parsed("Unknown", body[len(_MAGIC) :])
    type_meta = {"apiVersion": envelope.typeMeta.apiVersion, "kind": envelope.typeMeta.kind}
    if type_meta["kind"] not in _pool_names():
        message = f"no {type_meta['kind']} as protobuf here, send JSON"
        raise Refusal(415, "UnsupportedMediaType", message)
    inner = _parsed(type_meta["kind"], envelope.raw)
    made: Object = json_format.MessageToDict(inner, preserving_proto_field_name=True)
    return type_meta | _as_json(made)


def encoded(secret: Object) -> bytes:
    """What a client would send; for tests."""
    fields = {key: value for key, value in secret.items() if key not in ("apiVersion", "kind")}
    inner = json_format.ParseDict(fields, _message("Secret"))
    envelope: Any = _message("Unknown")
    envelope.typeMeta.apiVersion, envelope.typeMeta.kind = secret["apiVersion"], secret["kind"]
    envelope.raw = inner.SerializeToString()
    return _MAGIC + bytes(envelope.SerializeToString())


def _as_json(made: Object) -> Object:
    """With times as text, whole numbers as numbers, and no empty text; protobuf differs in all."""
    for part in filter(made.get, _PARTS):
        made[part] = {key: value for key, value in made[part].items() if value != ""}
    metadata = made.get("metadata", {})
    seconds = int(metadata.pop("creationTimestamp", {}).get("seconds", 0))
    if seconds > 0:
        metadata["creationTimestamp"] = timestamp(datetime.fromtimestamp(seconds, UTC))
    for holder in (made, *(made[part] for part in _PARTS if part in made)):
        for field in _NUMBERS & holder.keys():
            holder[field] = int(holder[field])
    return made


def _parsed(name: str, raw: bytes) -> Message:
    message = _message(name)
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        raise bad_request(f"the body is no {name}: {error}") from error
    return message


def _message(name: str) -> Message:
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))()


def _pool_names() -> set[str]:
    return {line.split()[0] for line in _MESSAGES.strip().splitlines()}


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto2"
    )
    for line in _MESSAGES.strip().splitlines():
        name, *fields = line.split()
        message = file.message_type.add(name=name)
        for field in fields:
            _describe(message, field)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _describe(message: descriptor_pb2.DescriptorProto, field: str) -> None:
    name, _, words = field.partition("=")
    number, _, type_ = words.partition(":")
    is_many = type_.startswith(("*", "{}"))
    made = message.field.add(
        name=name, json_name=name, number=int(number), label=3 if is_many else 1
    )
    if type_.startswith("{}"):
        entry = f"{name[0].upper()}{name[1:]}Entry"
        _describe_entry(message, entry, type_.removeprefix("{}"))
        type_ = f"{message.name}.{entry}"
    type_ = type_.lstrip("*")
    if type_ in _SCALARS:
        made.type = _SCALARS[type_]
    else:
        made.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
        made.type_name = f".{_PACKAGE}.{type_}"


def _describe_entry(message: descriptor_pb2.DescriptorProto, name: str, type_: str) -> None:
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=_SCALARS["string"])
    entry.field.add(name="value", number=2, label=1, type=_SCALARS[type_])


def is_protobuf(media_type: str) -> bool:
    return media_type.partition(";")[0].strip() == MEDIA_TYPE
