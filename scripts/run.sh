#!/usr/bin/env bash
# Creates the environment, fetches the default model and generates a text under a controller, with llama.cpp:
#
#   scripts/run.sh
#   scripts/run.sh --help                     lists the options
#   scripts/run.sh --model FILE.gguf          uses any GGUF model
#
# hf.sh and vllm.sh do the same with Transformers and vLLM, which are larger.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Only the controller that will run is built: the demonstration's, the one that is named, or a script's interpreter.
controllers=regex before="" own_model=""
for argument in "$@"; do
    name=""
    if [ "$before" = --controller ]; then name=$argument; fi
    case $argument in --controller=*) name=${argument#*=} ;; esac
    case $name in
        "") ;;
        *.py) controllers=pyctrl ;;
        *.js | *.mjs) controllers=jsctrl ;;
        *) controllers=$name ;;
    esac
    case $argument in
        --help | -h) controllers="" own_model=1 ;;
        --model | --model=*) own_model=1 ;;
    esac
    before=$argument
done
if [ ! -d "controllers/$controllers" ]; then controllers=""; fi
source scripts/setup.sh llama

# The network is idle while the controller is compiled. The program below fetches the model again if this fails.
if [ "$own_model" = "" ]; then
    .venv/bin/python -m pyaici.models --gguf >/dev/null &
    fetch=$!
    trap 'kill "$fetch" 2>/dev/null || true' EXIT
fi
build
if [ "$own_model" = "" ]; then wait "$fetch" || true; fi

export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export PATH="$PWD/.venv/bin:$PATH"
exec .venv/bin/python harness/run_llama.py "$@"
