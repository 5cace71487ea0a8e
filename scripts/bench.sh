#!/usr/bin/env bash
# Runs one suite of measurements, writes bench/results/SUITE.json and .png, prints `name value unit` lines last:
#
#   scripts/bench.sh size
#   scripts/bench.sh                          lists the suites
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh hf,sdk,dev
if [ "${1:-}" = vllm ]; then scripts/setup.sh hf,sdk,vllm; fi
export OMP_NUM_THREADS=1
export PATH="$PWD/.venv/bin:$PATH"
exec .venv/bin/python -m bench "$@"
