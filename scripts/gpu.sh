#!/usr/bin/env bash
# Measures what needs an NVIDIA GPU: masks by CUDA, and controllers on Transformers. Builds and installs nothing:
#
#   scripts/gpu.sh [--quick] [--out FOLDER]
#
# Its last lines are `name value unit`. It says what it could not try, and exits with status 3 if there is no GPU.
# It is the suite `gpu` of scripts/bench.sh, on the machine as it is. Variables:
#   AICI_PYTHON   the Python to use, with a torch for CUDA; default: .venv/bin/python, or else python3
#   PYTHONPATH    may name a folder with packages that this Python lacks
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${AICI_PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || python=python3
export OMP_NUM_THREADS=1
exec "$python" -m lab gpu "$@"
