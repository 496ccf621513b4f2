"""kubectl itself against the API."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.history import Object


def a_deployment(name: str, **spec: object) -> Object:
    labels = {"app": name}
    container = {"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template} | spec,
    }


def apply(cluster: MiniCluster, made: Object, manager: str, *words: str) -> str:
    """What kubectl says of it, good or bad."""
    words = ("apply", "--server-side", f"--field-manager={manager}", *words, "-f", "-")
    done = cluster.run("kubectl", *words, stdin=json.dumps(made))
    return done.stdout + done.stderr


def test_a_field_that_another_manager_has_is_a_conflict_that_names_him_until_it_is_forced(
    cluster: MiniCluster,
) -> None:
    assert "serverside-applied" in apply(cluster, a_deployment("shared", replicas=1), "one")
    said = apply(cluster, a_deployment("shared", replicas=2), "two")
    assert 'Apply failed with 1 conflict: conflict with "one": .spec.replicas' in said
    assert "serverside-applied" in apply(
        cluster, a_deployment("shared", replicas=2), "two", "--force-conflicts"
    )
    shown = yaml.safe_load(cluster.kubectl("get", "deploy", "shared", "-o", "yaml"))
    assert shown["spec"]["replicas"] == 2


def test_kubectl_sees_scales_changes_and_deletes_a_deployment(cluster: MiniCluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(a_deployment("web")))
    header, row = cluster.kubectl("get", "deploy", "web", "-o", "wide").splitlines()
    assert header.split() == [
        "NAME",
        "READY",
        "UP-TO-DATE",
        "AVAILABLE",
        "AGE",
        "IMAGES",
        "SELECTOR",
    ]
    assert row.split()[:4] == ["web", "0/1", "0", "0"]
    cluster.kubectl("scale", "deploy/web", "--replicas=5", "--current-replicas=1")
    cluster.kubectl("set", "image", "deploy/web", "web=web:2")
    shown = json.loads(cluster.kubectl("get", "deploy", "web", "-o", "json"))
    (container,) = shown["spec"]["template"]["spec"]["containers"]
    assert (shown["spec"]["replicas"], shown["metadata"]["generation"]) == (5, 3)
    assert (container["image"], container["ports"][0]["containerPort"]) == ("web:2", 80)
    cluster.kubectl("delete", "deploy", "web")
    assert "not found" in cluster.run("kubectl", "get", "deploy", "web").stderr


def test_rollout_status_believes_what_the_deployments_status_says(cluster: MiniCluster) -> None:
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(a_deployment("rolled")))
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    status = {"observedGeneration": 1} | counts
    cluster.call(lambda: cluster.store.set_status("deployments.apps", "default", "rolled", status))
    said = cluster.kubectl("rollout", "status", "deploy/rolled")
    assert "successfully rolled out" in said


def test_an_item_of_a_list_that_is_applied_no_more_is_gone_with_its_name(
    cluster: MiniCluster,
) -> None:
    made = a_deployment("told", replicas=0)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    for names in (["FIRST", "SECOND"], ["FIRST"]):
        container["env"] = [{"name": name, "value": "1"} for name in names]
        assert "serverside-applied" in apply(cluster, made, "one")
    (now,) = cluster.call(
        lambda: cluster.store.get("deployments.apps", "default", "told")["spec"]["template"][
            "spec"
        ]["containers"]
    )
    assert now["env"] == [{"name": "FIRST", "value": "1"}]


@pytest.mark.parametrize("words", [("--server-side",), ()])
def test_a_misspelt_field_is_refused_by_its_name(
    cluster: MiniCluster, words: tuple[str, ...]
) -> None:
    made = json.dumps(a_deployment("misspelt", replica=1))
    done = cluster.run("kubectl", "apply", *words, "-f", "-", stdin=made)
    assert 'unknown field "spec.replica"' in done.stderr


def test_a_token_may_do_what_roles_say_and_the_refusal_says_what_was_wanted(
    cluster: MiniCluster,
) -> None:
    cluster.kubectl("create", "serviceaccount", "looker")
    cluster.kubectl("create", "role", "look", "--verb=get,list", "--resource=pods")
    cluster.kubectl("create", "rolebinding", "l", "--role=look", "--serviceaccount=default:looker")
    token = cluster.kubectl("create", "token", "looker").strip()
    cluster.kubectl("get", "pods", token=token)
    assert cluster.kubectl("auth", "can-i", "list", "pods", token=token) == "yes\n"
    assert cluster.run("kubectl", "auth", "can-i", "delete", "pods", token=token).stdout == "no\n"
    said = cluster.run("kubectl", "get", "deployments", token=token).stderr
    assert (
        'deployments.apps is forbidden: User "system:serviceaccount:default:looker" cannot list '
        'resource "deployments" in API group "apps" in the namespace "default"'
    ) in said
    cluster.kubectl("delete", "serviceaccount", "looker")
    assert "Unauthorized" in cluster.run("kubectl", "get", "pods", token=token).stderr
