#!/usr/bin/env bash
# Creates the environments and runs all tests, or those that the arguments of pytest select:
#
#   scripts/test.sh
#   scripts/test.sh tests/pyaici/build -k parallel
#
# tests/pyaici/engines/vllm runs with .venv-vllm, everything else with .venv. Creates only the environments it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
vllm_tests=tests/pyaici/engines/vllm

# Paths of tests go to the environment that runs them, all other arguments to both.
for_main=() for_vllm=() named="" in_main="" in_vllm="" before=""
for argument in "$@"; do
    path=${argument%%::*}
    case $before/$argument in -k/* | -m/* | */-*) path="" ;; esac
    if [ -e "$path" ]; then
        path=$(realpath -s --relative-to=. "$path")
    else
        # pytest with several workers would only report that it ran no tests
        case $path in
            tests/*) printf 'test.sh: there is no %s\n' "$path" >&2; exit 4 ;;
        esac
        path=""
    fi
    before=$argument
    case $path/ in
        $vllm_tests/*)
            for_vllm+=("$argument")
            named=1 in_vllm=1
            ;;
        ./ | tests/ | tests/pyaici/ | tests/pyaici/engines/)
            for_main+=("$argument")
            for_vllm+=("$vllm_tests")
            named=1 in_main=1 in_vllm=1
            ;;
        tests/*)
            for_main+=("$argument")
            named=1 in_main=1
            ;;
        *)
            for_main+=("$argument")
            for_vllm+=("$argument")
            ;;
    esac
done
if [ "$named" = "" ]; then
    for_vllm+=("$vllm_tests")
    in_main=1 in_vllm=1
fi

# OpenMP spins if it has more threads than free cores, and a step of the model then takes ten times as long
export OMP_NUM_THREADS=1
# Images of containers often set it. The tests start thousands of processes, which would all compile the same modules.
unset PYTHONDONTWRITEBYTECODE
path=$PATH
status=5 # pytest's status if there are no tests

# In CI a missing tool is a failure. Its script has printed the reason.
lacking() {
    [ "${CI:-}" != true ] || { printf 'test.sh: scripts/%s failed; in CI its tests must not be skipped\n' "$1" >&2; exit 1; }
}

# Runs pytest in the environment that was created last. Sets $status to the first status that is an error. After
# Ctrl-C, which pytest gets as well, and after SIGTERM, pytest cleans up and the script ends.
run_tests() {
    local ended=0 stopped=""
    (
        trap - INT # background commands ignore it by default
        exec "$environment/bin/python" -m pytest --numprocesses=auto --timeout=600 --durations=25 "$@"
    ) <&0 &
    child=$!
    trap 'stopped=130' INT
    trap 'stopped=143; kill -INT "$child"' TERM
    wait "$child" || ended=$?
    [ "$stopped" = "" ] || { wait "$child" || true; exit "$stopped"; }
    trap - INT TERM
    case $status,$ended in *,5) ;; 0,* | 5,*) status=$ended ;; esac
}

if [ "$in_main" ]; then
    source scripts/setup.sh hf,sdk,dev
    # Compilers of other languages, a browser, and a clang that fuzzes readers of grammars. The tests of a tool that
    # cannot be fetched are skipped, but not in CI.
    if more=$(scripts/languages.sh); then export AICI_LANGUAGES=all; else lacking languages.sh; fi
    if browser=$(scripts/browser.sh); then export AICI_BROWSER=yes; else lacking browser.sh; fi
    if scripts/clang.sh >/dev/null; then export AICI_CLANG=yes; else lacking clang.sh; fi
    export PATH="$more$browser$PWD/.venv/bin:$path"
    # in the order of tests/conftest.py, which begins with the longest tests
    run_tests --maxprocesses=4 --dist=loadscope --no-loadscope-reorder "${for_main[@]}"
fi
if [ "$in_vllm" ]; then
    source scripts/setup.sh hf,sdk,server,vllm,test
    export PATH="$PWD/.venv-vllm/bin:$path"
    # the tests of a file share an engine
    run_tests --maxprocesses=2 --dist=loadfile "${for_vllm[@]}"
fi
exit "$status"
