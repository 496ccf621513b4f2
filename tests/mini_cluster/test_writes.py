"""Writes over HTTPS that the API refuses, or does in part."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import yaml

from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.history import Object
from tests.mini_cluster.protobuf import MEDIA_TYPE, encoded

_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
_SECRETS = "/api/v1/namespaces/default/secrets"
_DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: teams.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: teams, singular: team, kind: Team, listKind: TeamList, shortNames: [tm]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
          status: {type: object, properties: {size: {type: integer}}}
"""


@pytest.fixture
def client(cluster: MiniCluster) -> Iterator[httpx.Client]:
    with cluster.client() as made:
        yield made
        for path in (_DEPLOYMENTS, _LEASES, _SECRETS):
            made.delete(path)


def a_deployment(name: str) -> Object:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def test_of_two_who_write_what_they_have_read_the_second_is_refused(client: httpx.Client) -> None:
    lease = client.post(_LEASES, json={"metadata": {"name": "leader"}, "spec": {}}).json()
    answers = [
        client.put(f"{_LEASES}/leader", json=lease | {"spec": {"holderIdentity": name}})
        for name in ("one", "two")
    ]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert "the object has been modified" in answers[1].json()["message"]


def test_what_is_missing_or_of_another_type_is_named(client: httpx.Client) -> None:
    made = a_deployment("web")
    made["spec"]["replicas"] = "two"
    del made["spec"]["selector"]
    refused = client.post(_DEPLOYMENTS, json=made)
    assert refused.status_code == 422
    assert "spec.replicas: 'two' is not of type" in refused.json()["message"]
    assert "'selector' is a required property" in refused.json()["message"]


def test_who_scales_has_the_number_from_whoever_applied_it(client: httpx.Client) -> None:
    applied: Object = {"apiVersion": "apps/v1", "kind": "Deployment"} | a_deployment("web")
    path, kind = f"{_DEPLOYMENTS}/web", {"Content-Type": "application/apply-patch+yaml"}
    by_helm = {"fieldManager": "helm"}
    client.patch(path, params=by_helm, headers=kind, json=applied).raise_for_status()
    merge = {"Content-Type": "application/merge-patch+json"}
    wanted = {"spec": {"replicas": 3}}
    client.patch(f"{path}/scale", params={"fieldManager": "me"}, headers=merge, json=wanted)
    managers = {
        (each["manager"], each.get("subresource")): each["fieldsV1"]["f:spec"]
        for each in client.get(path).json()["metadata"]["managedFields"]
    }
    assert managers[("me", "scale")] == {"f:replicas": {}}
    assert "f:replicas" not in managers[("helm", None)]
    refused = client.patch(path, params=by_helm, headers=kind, json=applied)
    assert refused.status_code == 409
    assert 'conflict with "me" with subresource "scale"' in refused.json()["message"]


def test_a_dry_run_says_what_would_be_and_leaves_nothing(client: httpx.Client) -> None:
    made = client.post(_DEPLOYMENTS, params={"dryRun": "All"}, json=a_deployment("web"))
    assert made.json()["spec"]["strategy"]["type"] == "RollingUpdate"
    assert client.get(f"{_DEPLOYMENTS}/web").status_code == 404


def test_the_status_is_written_apart_from_all_else(client: httpx.Client) -> None:
    made = client.post(_DEPLOYMENTS, json=a_deployment("web") | {"status": {"replicas": 9}}).json()
    assert "status" not in made
    made["spec"]["replicas"] = 5
    made["status"] = {"replicas": 1, "observedGeneration": 1}
    written = client.put(f"{_DEPLOYMENTS}/web/status", json=made).json()
    assert (written["spec"]["replicas"], written["status"]["replicas"]) == (1, 1)
    assert written["metadata"]["generation"] == 1


def test_nothing_is_made_in_a_namespace_that_is_not_there(client: httpx.Client) -> None:
    refused = client.post("/api/v1/namespaces/nowhere/secrets", json={"metadata": {"name": "s"}})
    assert refused.json()["message"] == 'namespaces "nowhere" not found'


def test_a_secret_comes_in_protobuf_as_helm_sends_it(client: httpx.Client) -> None:
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1"}
    secret |= {"metadata": {"name": "release", "labels": {"owner": "helm"}}}
    body = encoded(secret | {"data": {"release": "c2FpZA=="}})
    client.post(_SECRETS, content=body, headers={"Content-Type": MEDIA_TYPE})
    found = client.get(_SECRETS, params={"labelSelector": "owner=helm"}).json()["items"]
    assert [(each["data"], each["type"]) for each in found] == [
        ({"release": "c2FpZA=="}, "helm.sh/release.v1")
    ]


def test_a_secrets_plain_words_are_kept_as_its_data(client: httpx.Client) -> None:
    body = {"metadata": {"name": "words"}, "stringData": {"key": "said"}}
    assert client.post(_SECRETS, json=body).json()["data"] == {"key": "c2FpZA=="}


def test_a_custom_resource_is_one_like_others_once_it_is_defined(cluster: MiniCluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=_DEFINITION)
    cluster.kubectl("wait", "--for=condition=Established", "crd/teams.example.org")
    team = {"apiVersion": "example.org/v1", "kind": "Team", "metadata": {"name": "red"}}
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(team | {"spec": {"size": 2}}))
    cluster.kubectl("scale", "team/red", "--replicas=3")
    header, row = cluster.kubectl("get", "tm").splitlines()
    assert (header.split(), row.split()[:2]) == (["NAME", "SIZE", "AGE"], ["red", "3"])
    wrong = yaml.safe_dump(team | {"spec": {"seize": 2}})
    refused = cluster.run("kubectl", "apply", "--server-side", "-f", "-", stdin=wrong)
    assert 'unknown field "spec.seize"' in refused.stderr
