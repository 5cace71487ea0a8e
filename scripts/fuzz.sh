#!/usr/bin/env bash
# Fuzzes a reader of what strangers send, guided by coverage; ends with status 1 on a finding, which is kept:
#
#   scripts/fuzz.sh                           lists the targets
#   scripts/fuzz.sh TARGET --seconds N
#   scripts/fuzz.sh --help                    what else it takes
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh hf,sdk,dev

export OMP_NUM_THREADS=1
exec .venv/bin/python -m tests.fuzz "$@"
