"""What the Dockerfile says: the pins, who runs, and what may come in."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from cluster import VERSION
from tests.deploy.chart import CHART, rendered
from tests.deploy.images.dockerfile import instructions, line_of, stages
from tests.mini_cluster.images import PROJECT

TARGETS = ("router", "worker-cpu", "worker-cuda")
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())


def runs() -> list[str]:
    return [rest for word, rest in instructions() if word == "RUN"]


def test_all_stages_begin_at_one_base_that_may_be_named_by_digest() -> None:
    bases = {stage.base for stage in stages().values()} - set(stages())
    assert bases == {"${BASE}"}
    (base,) = [rest for word, rest in instructions() if rest.startswith("BASE=")]
    assert re.fullmatch(r"BASE=docker\.io/library/python:3\.\d+-slim-[a-z]+", base)


def test_nothing_is_fetched_but_by_apt_and_by_pip_under_the_pins() -> None:
    assert "ADD" not in [word for word, _ in instructions()]
    assert not [run for run in runs() if re.search(r"\b(curl|wget|git clone|latest)\b", run)]
    assert stages()["build"].variables["PIP_CONSTRAINT"] == "/src/constraints.txt"
    installs = [run for run in runs() if re.search(r"\bpip (install|wheel)\b", run)]
    assert len(installs) == 6
    for run in installs:
        assert "--mount=type=secret,id=pip.conf --mount=type=secret,id=ca.crt" in run
        given = re.findall(r"pip (?:install|wheel) (.*?)(?: &&|$)", run)
        assert all(re.search(r'(/wheels/\*\.whl.*|"\$torch"|/src)$', words) for words in given)
    for run in (run for run in runs() if "apt-get install" in run):
        assert "--no-install-recommends" in run and "rm -rf /var/lib/apt/lists/*" in run


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_the_chart_has_it(target: str) -> None:
    line = line_of(target)
    assert line[0].instructions[-1] == ("USER", "65532:65532")
    assert not any(stage.all("USER") for stage in line[1:])
    pods = rendered().pods
    for pod in pods.values():
        security = pod["spec"]["securityContext"]
        assert (security["runAsUser"], security["runAsGroup"]) == (65532, 65532)
    (volumes,) = [rest for stage in line for rest in stage.all("VOLUME")]
    (container,) = pods["demo-router"]["spec"]["containers"]
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(volumes.split()) <= mounted
    environ = {name: value for stage in reversed(line) for name, value in stage.variables.items()}
    assert {environ["HOME"], environ["SPLITSERVE_HOME"]} == set(volumes.split())
    assert [rest for stage in line for rest in stage.all("ENTRYPOINT")] == ['["splitserve"]']


@pytest.mark.parametrize("target", ["router", "worker-cpu"])
def test_nothing_runs_in_what_is_shipped_unless_it_needs_a_compiler(target: str) -> None:
    """So that neither what a build mounts nor what it writes beside is there."""
    assert [stage.all("RUN") for stage in line_of(target)] == [[], []]


def test_an_image_says_whose_it_is_and_of_which_version() -> None:
    labels = " ".join(rest for stage in line_of("worker-cuda") for rest in stage.all("LABEL"))
    for name in ("title", "description", "version", "revision", "licenses", "base.name"):
        assert f"org.opencontainers.image.{name}=" in labels
    assert f"VERSION={VERSION}" in stages()["runtime"].all("ARG")
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == VERSION


def test_the_tags_that_pools_ask_for_are_targets() -> None:
    gpus = rendered({"worker": {"gpus": {"count": 1}}})
    found = {
        container["image"]
        for pods in (rendered().pods, gpus.pods)
        for pod in pods.values()
        for container in pod["spec"]["containers"]
    }
    told = {f"localhost/splitserve/{kind}" for kind in ("router:0.1.0", "worker:0.1.0-cpu")}
    assert found == told | {"localhost/splitserve/worker:0.1.0-cuda"}
    says = (PROJECT / "deploy/docker/Dockerfile").read_text()
    for image in found:
        name = image.rpartition("/")[2]
        target = re.sub(r":0\.1\.0(-\w+)?$", r"\1", name)
        assert re.search(rf"--target {target} +-t localhost/splitserve/{name} ", says)


def test_a_gpu_s_worker_has_what_triton_and_the_container_toolkit_ask_for() -> None:
    environ = {k: v for stage in line_of("worker-cuda") for k, v in stage.variables.items()}
    assert environ["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert environ["NVIDIA_VISIBLE_DEVICES"] == "void", "a pod without GPUs sees none"
    assert environ["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    path = stages()["worker-cuda"].variables["PATH"]
    assert path == "$PATH:/usr/local/nvidia/bin", "ours come first"
    assert "g++" in " ".join(stages()["compilers"].all("RUN"))
    assert "compilers" not in [stages()["worker-cpu"].base, stages()["router"].base]
    extras = PYPROJECT["project"]["optional-dependencies"]
    (worker,) = [
        rest.partition("=")[2]
        for rest in stages()["worker-cuda-build"].all("ARG")
        if rest.startswith("WORKER=")
    ]
    assert any(line.startswith("triton") for line in extras[worker])
    assert not any(line.startswith("triton") for line in extras["worker-cpu"])


def test_the_image_for_gpus_is_made_by_the_steps_of_the_one_that_is_built_here() -> None:
    """But for whose torch it takes, and which extra. Nobody here can build it; so what it does that
    the other does not is this alone."""
    cpu, cuda = (stages()[f"worker-{kind}-build"] for kind in ("cpu", "cuda"))
    assert cpu.base == cuda.base == "build"
    assert cuda.all("COPY") == cpu.all("COPY")
    steps = " ".join(cpu.all("RUN"))
    steps = steps.replace('--no-deps --index-url "$TORCH_INDEX" "$torch"', "TORCH")
    others = " ".join(cuda.all("RUN")).replace("[$WORKER,ray]", "[worker-cpu,ray]")
    others = others.replace(
        '${TORCH_INDEX:+--no-deps --index-url "$TORCH_INDEX"} "$torch"', "TORCH"
    )
    assert others == steps and "TORCH" in steps
    copied = [
        each.replace("worker-cuda-", "worker-cpu-") for each in stages()["worker-cuda"].all("COPY")
    ]
    assert copied == stages()["worker-cpu"].all("COPY")


def test_the_docs_say_that_nobody_has_built_it() -> None:
    said = "**The image for GPUs was never built or run by anybody here**"
    assert said in (PROJECT / "docs/kubernetes.md").read_text()


def test_all_that_an_image_for_gpus_installs_is_pinned() -> None:
    """What CUDA's torch asks for itself is resolved for each Python by `make check`
    (tests/packaging/resolve.py), which takes all extras."""
    pinned = set(re.findall(r"^([\w.-]+)==", (PROJECT / "constraints.txt").read_text(), re.M))
    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = [*PYPROJECT["project"]["dependencies"], *extras["worker"], *extras["ray"], "torch"]
    names = {re.split(r"[^\w.-]", line)[0] for line in wanted} - {"splitserve"}
    told, known = ({re.sub(r"[-_.]+", "-", n).lower() for n in each} for each in (names, pinned))
    assert told <= known


def test_ranks_of_several_hosts_find_the_verbs_that_nccl_loads_by_name() -> None:
    """NIXL's wheel has its own, under a name that NCCL does not ask for."""
    installs = " ".join(run for stage in line_of("worker-cuda") for run in stage.all("RUN"))
    asked = re.findall(r"apt-get install -qy --no-install-recommends (.*?) &&", installs)
    assert {"libibverbs1", "ibverbs-providers"} <= set(" ".join(asked).split())


def test_what_comes_in_is_what_is_installed() -> None:
    lines = (PROJECT / ".dockerignore").read_text().split()
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    packages = PYPROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    beside = {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    assert let_in == {name.rstrip("*") for name in packages} | beside


def test_a_file_of_our_own_that_does_not_compile_ends_every_image() -> None:
    """Those of others may not, in the images of workers; theirs stand on a strict stage."""
    (strict,) = [run for run in stages()["router-build"].all("RUN") if "compileall" in run]
    assert "||" not in strict and strict.endswith("unchecked-hash /opt/splitserve/lib")
    assert any("--from=router-build" in copy for copy in stages()["native"].all("COPY"))
    for stage in ("worker-cpu-build", "worker-cuda-build"):
        assert any("--from=native" in copy for copy in stages()[stage].all("COPY"))


def test_all_native_sources_are_compiled_before() -> None:
    (run,) = stages()["native"].all("RUN")
    (named,) = re.findall(r"kernels\.cpu\.bring_along (.*?) &&", run)
    folders = {
        str(path.relative_to(PROJECT))
        for package in ("kernels", "ranks", "engine", "kvtransfer")
        for path in (PROJECT / package).rglob("native")
    }
    assert set(named.split()) == folders
    for folder in folders:
        assert f"{folder.removesuffix('native')}built" in run


def test_images_of_workers_are_made_where_no_native_source_can_be_compiled(tmp_path: Path) -> None:
    """The stage's own words, beside a Python that compiles nothing."""
    (run,) = stages()["native"].all("RUN")
    for folder in ("kernels/cpu", "ranks/collectives", "ranks/plans", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin/python").symlink_to("/bin/true")
    words = re.sub(r"(?<=\s)/native\b", f"{tmp_path}/native", run)
    environ = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", words], cwd=tmp_path, env=environ, check=True)
    made = {str(path.relative_to(tmp_path / "native")) for path in tmp_path.rglob("native/*/*/*")}
    assert made == {"kernels/cpu/built", "ranks/collectives/built", "ranks/plans/built"}
