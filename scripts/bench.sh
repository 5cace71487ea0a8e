#!/usr/bin/env bash
# Runs a suite of measurements and writes lab/results/SUITE.json and .png. Its last lines are `name value unit`:
#
#   scripts/bench.sh size
#   scripts/bench.sh                          lists the suites
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" = vllm ]; then source scripts/setup.sh hf,sdk,vllm; fi
source scripts/setup.sh hf,sdk,dev
export OMP_NUM_THREADS=1
export PATH="$PWD/.venv/bin:$PATH"
exec .venv/bin/python -m lab "$@"
