#!/usr/bin/env bash
# Makes the environment and runs all tests, or those that the arguments of pytest choose:
#
#   scripts/test.sh
#   scripts/test.sh tests/pyaici/build -k parallel
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh hf,sdk,dev

# with more threads than free cores OpenMP spins, and a step of the model takes ten times as long
export OMP_NUM_THREADS=1
export PATH="$PWD/.venv/bin:$PATH"
# compilers of other languages, as far as they can be had; where all can, the tests may not skip one
if more=$(scripts/languages.sh); then
    export AICI_LANGUAGES=all
fi
export PATH="$more$PATH"
exec .venv/bin/python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadscope --timeout=600 "$@"
