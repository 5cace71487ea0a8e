#!/usr/bin/env bash
# Creates the environment, fetches the default model and generates a text under a controller:
#
#   scripts/hf.sh
#   scripts/hf.sh --help                      lists the options
#   scripts/hf.sh --model PATH                uses any local Transformers model
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh hf,sdk

# OpenMP spins if it has more threads than free cores, and a step of the model then takes ten times as long
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export PATH="$PWD/.venv/bin:$PATH"
exec .venv/bin/python harness/run_hf.py "$@"
