#!/usr/bin/env bash
# Fuzzes a reader of untrusted input, guided by coverage. Keeps the input of a finding and ends with status 1:
#
#   scripts/fuzz.sh                           lists the targets
#   scripts/fuzz.sh TARGET --seconds N
#   scripts/fuzz.sh --help                    lists the options
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh hf,sdk,dev

export OMP_NUM_THREADS=1
exec .venv/bin/python -m lab.fuzz "$@"
