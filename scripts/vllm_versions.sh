#!/usr/bin/env bash
# Tries published versions of vLLM without a GPU and without kernels, and prints what is different as a table:
#
#   scripts/vllm_versions.sh                  the versions that are supported
#   scripts/vllm_versions.sh 0.34.0           another version
#   scripts/vllm_versions.sh --help           lists the options
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=python3
case " $* " in
    *" --help "* | *" -h "*) if [ -x .venv/bin/python ]; then python=.venv/bin/python; fi ;;
    *)
        source scripts/setup.sh hf,sdk,server,vllm,test
        python=.venv-vllm/bin/python
        export PATH="$PWD/.venv-vllm/bin:$PATH"
        ;;
esac
exec "$python" -m tests.vllm_versions "$@"
