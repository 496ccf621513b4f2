"""Which resources the API has: those of every cluster that matter here, and custom ones."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mini_cluster.history import Object
from tests.mini_cluster.object_store import ObjectStore

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_REVIEW_GROUPS = ("authentication.k8s.io", "authorization.k8s.io")
"""Nothing of theirs is kept: a review is asked by creating it."""

_ALL = {
    *("Pod", "Service", "ReplicationController", "Deployment", "ReplicaSet", "StatefulSet"),
    *("DaemonSet", "Job", "CronJob", "HorizontalPodAutoscaler"),
}
"""What `kubectl get all` means."""

# group/version, plural, kind, scope, short names, subresources
_ROWS = """
v1 namespaces Namespace cluster ns status
v1 nodes Node cluster no status
v1 pods Pod in po status,log,eviction
v1 services Service in svc status
v1 secrets Secret in - -
v1 configmaps ConfigMap in cm -
v1 serviceaccounts ServiceAccount in sa token
v1 persistentvolumeclaims PersistentVolumeClaim in pvc status
v1 persistentvolumes PersistentVolume cluster pv status
v1 events Event in ev -
v1 endpoints Endpoints in ep -
v1 resourcequotas ResourceQuota in quota status
v1 limitranges LimitRange in limits -
v1 replicationcontrollers ReplicationController in rc status,scale
apps/v1 deployments Deployment in deploy status,scale
apps/v1 replicasets ReplicaSet in rs status,scale
apps/v1 statefulsets StatefulSet in sts status,scale
apps/v1 daemonsets DaemonSet in ds status
apps/v1 controllerrevisions ControllerRevision in - -
batch/v1 jobs Job in - status
batch/v1 cronjobs CronJob in cj status
policy/v1 poddisruptionbudgets PodDisruptionBudget in pdb status
rbac.authorization.k8s.io/v1 roles Role in - -
rbac.authorization.k8s.io/v1 rolebindings RoleBinding in - -
rbac.authorization.k8s.io/v1 clusterroles ClusterRole cluster - -
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding cluster - -
coordination.k8s.io/v1 leases Lease in - -
discovery.k8s.io/v1 endpointslices EndpointSlice in - -
networking.k8s.io/v1 networkpolicies NetworkPolicy in netpol -
networking.k8s.io/v1 ingresses Ingress in ing status
autoscaling/v2 horizontalpodautoscalers HorizontalPodAutoscaler in hpa status
storage.k8s.io/v1 storageclasses StorageClass cluster sc -
scheduling.k8s.io/v1 priorityclasses PriorityClass cluster pc -
apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition cluster crd,crds status
authentication.k8s.io/v1 selfsubjectreviews SelfSubjectReview cluster - -
authorization.k8s.io/v1 selfsubjectaccessreviews SelfSubjectAccessReview cluster - -
"""


@dataclass(frozen=True, slots=True)
class Resource:
    """One plural name in one version of one group."""

    group: str
    """"" is the core's."""
    version: str
    plural: str
    kind: str
    is_namespaced: bool
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    custom: Object | None = None
    """This version's part of the definition; None: it is built in."""

    @property
    def name(self) -> str:
        """As the store has it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def verbs(self) -> tuple[str, ...]:
        return ("create",) if self.group in _REVIEW_GROUPS else _VERBS

    @property
    def categories(self) -> list[str]:
        return ["all"] if self.kind in _ALL and self.custom is None else []

    @property
    def type_meta(self) -> dict[str, str]:
        return {"apiVersion": self.api_version, "kind": self.kind}


class Resources:
    """What there is now: a definition that is stored is a resource at once."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def all(self) -> list[Resource]:
        """Those built in first."""
        custom = self._store.select(DEFINITIONS)
        return [*_BUILT_IN, *(resource for each in custom for resource in resources_of(each))]

    def find(self, api_version: str, plural: str) -> Resource | None:
        """None: there is no such thing, or not in this version."""
        for resource in self.all():
            if (resource.api_version, resource.plural) == (api_version, plural):
                return resource
        return None


def resources_of(definition: Object) -> list[Resource]:
    """One for each version that is served."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        Resource(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames", ())),
            tuple(version.get("subresources", ())),
            version,
        )
        for version in spec["versions"]
        if version["served"]
    ]


def _built_in(row: str) -> Resource:
    api_version, plural, kind, scope, short_names, subresources = row.split()
    group, _, version = api_version.rpartition("/")
    return Resource(
        group, version, plural, kind, scope == "in", _listed(short_names), _listed(subresources)
    )


def _listed(words: str) -> tuple[str, ...]:
    return () if words == "-" else tuple(words.split(","))


_BUILT_IN = [_built_in(row) for row in _ROWS.strip().splitlines()]
