#!/usr/bin/env bash
# Compares published versions of vLLM with the names that AICI's plugin relies on, and prints a line for each version:
#
#   scripts/vllm_versions.sh                  all versions in the range that pyproject.toml accepts
#   scripts/vllm_versions.sh --range ">=0.31" other versions
#   scripts/vllm_versions.sh --help           lists the options
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case " $* " in *" --help "* | *" -h "*) ;; *) scripts/setup.sh hf,sdk,dev ;; esac
python=.venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" -m tests.vllm_versions "$@"
