#!/usr/bin/env bash
# Makes the environment, fetches the default model and shows a generation under a controller's control:
#
#   scripts/hf.sh
#   scripts/hf.sh --help                      what else it takes
#   scripts/hf.sh --model PATH                any local Transformers model
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh hf,sdk

# with more threads than free cores OpenMP spins, and a step of the model takes ten times as long
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export PATH="$PWD/.venv/bin:$PATH"
exec .venv/bin/python harness/run_hf.py "$@"
