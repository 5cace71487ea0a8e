#!/usr/bin/env bash
# Creates the environments and runs all tests, or those that the arguments of pytest select:
#
#   scripts/test.sh
#   scripts/test.sh tests/pyaici/toolchain -k parallel
#   scripts/test.sh --quick           a test of each module, the main jobs, and the tests that reach a change: two to
#                                     three minutes of a good machine. Creates no environment for vLLM, fetches no tools
#   scripts/test.sh --within 60       all tests if they end within 60 minutes here, --quick otherwise
#   scripts/test.sh --thorough        the long forms of tests whose length is a choice (tests/thorough.py)
#   scripts/test.sh --busy            beside processes that never sleep, so that everything takes five to ten times as
#                                     long: a test that fails then assumes a fast machine
#
# Prints how long it will take here (tests/durations.py) and, at the end, `tests.cpu_s`: the processor seconds of all
# tests. tests/pyaici/engines/vllm runs with .venv-vllm, everything else with .venv: at once where two processors and
# 12 GB are free, else one after the other. Creates only the environments it needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
vllm_tests=tests/pyaici/engines/vllm
report() { printf 'test.sh: %s\n' "$*"; } # setup.sh has another `say`

choice=all busy="" others=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) choice=quick ;;
        --within) choice=${2:-}; if [ $# -gt 1 ]; then shift; fi ;;
        --thorough) export AICI_THOROUGH=1 ;;
        --busy) busy=1 ;;
        *) others+=("$1") ;;
    esac
    shift
done
case $choice in
    all | quick) ;;
    "" | *[!0-9]*) printf 'test.sh: --within needs a number of minutes\n' >&2; exit 4 ;;
esac
set -- "${others[@]}"

# Paths of tests go to the environment that runs them, all other arguments to both.
for_main=() for_vllm=() paths=() named="" in_main="" in_vllm="" before=""
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
    case $path/ in ./ | tests/*) paths+=("$path") ;; esac
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

# Without a Python there is no estimate, and setup.sh says which Python it needs.
slower=1 order=after plan=""
for python in .venv/bin/python ${AICI_PYTHON:-python3.11 python3.12 python3.13 python3}; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        plan=$("$python" -m tests.durations --plan "$choice" "${paths[@]}") || plan=""
        break
    fi
done
if [ "$plan" ]; then
    { read -r choice; read -r slower; read -r order; read -r plan; } <<<"$plan"
    report "$plan"
fi
case $choice in all) ;; *) choice=quick ;; esac # --within without a plan

# OpenMP spins if it has more threads than free cores, and a step of the model then takes ten times as long
export OMP_NUM_THREADS=1
# Images of containers often set it. The tests start thousands of processes, which would all compile the same modules.
unset PYTHONDONTWRITEBYTECODE
path=$PATH
status=5 # pytest's status if there are no tests
options=(--numprocesses=auto --durations=25)
if [ "$choice" = quick ]; then options+=(--quick); fi
# Ends a test that hangs. What takes a minute on a good machine, undisturbed, is far from it on any machine.
options+=("--timeout=$((600 * slower * (busy ? 10 : 1)))")

# --quick fetches no tools, but uses those that were fetched.
wanted() { [ "$choice" = all ] || [ -d "${HOME:-}/.cache/aici/$1" ]; }

# In CI a missing tool is a failure. Its script has printed the reason.
lacking() {
    [ "${CI:-}" != true ] || { printf 'test.sh: scripts/%s failed; in CI its tests must not be skipped\n' "$1" >&2; exit 1; }
}

# Four processes for each processor, of the same priority as the tests: the lowest. They end with this script.
keep_busy() {
    local i
    renice -n 19 $$ >/dev/null
    for ((i = 0; i < 4 * $(unset OMP_NUM_THREADS; nproc); i++)); do
        while kill -0 $$ 2>/dev/null; do for ((j = 0; j < 100000; j++)); do :; done; done &
        spinning+=($!)
    done
}

# Prints the processor seconds of the tests, and what was run. Also after Ctrl-C.
# shellcheck disable=SC2329 # the trap calls it
finish() {
    local ended=$?
    if [ ${#spinning[@]} -gt 0 ]; then kill "${spinning[@]}" 2>/dev/null || true; fi
    if [ "$later" ]; then rm -f "$later"; fi
    rm -rf "$AICI_COMMON_CODE"
    printf 'tests.cpu_s %d s\n' "$cpu"
    report "${plan:-${choice/all/all tests}}; ended with status $ended after $((SECONDS / 60)) min"
}
spinning=() running=() cpu=0 later="" tools=""
# Both runs of pytest use the code of bundled controllers that one of them has compiled (lab/runners/compiled.py).
AICI_COMMON_CODE=$(mktemp -d)
export AICI_COMMON_CODE
trap finish EXIT
if [ "$busy" ]; then keep_busy; fi

# Starts pytest with the Python of an environment.
start_tests() {
    (
        trap - EXIT
        trap - INT # background commands ignore it by default
        PATH="$tools$PWD/$1/bin:$path" exec "$1/bin/python" -m pytest "${options[@]}" "${@:2}"
    ) <&0 &
    running+=($!)
}

# Waits for all runs of pytest. Sets $status to the first status that is an error. After Ctrl-C, which pytest gets as
# well, and after SIGTERM, pytest cleans up and the script ends.
await_tests() {
    local ended stopped="" pid stat
    read -r -a stat <"/proc/$$/stat"
    local before=$((stat[15] + stat[16]))
    trap 'stopped=130' INT
    trap 'stopped=143; kill -INT "${running[@]}" 2>/dev/null' TERM
    for pid in "${running[@]}"; do
        ended=0
        wait "$pid" || ended=$?
        # A signal ends the wait. Bash 5.2 would wait for ever for a process that ended at that moment.
        while kill -0 "$pid" 2>/dev/null; do wait "$pid" || true; done
        case $status,$ended in *,5) ;; 0,* | 5,*) status=$ended ;; esac
    done
    running=()
    read -r -a stat <"/proc/$$/stat" # in hundredths of a second
    cpu=$((cpu + (stat[15] + stat[16] - before) / 100))
    [ "$stopped" = "" ] || exit "$stopped"
    trap - INT TERM
}

# Starts vLLM's tests. Each group shares engines: tests/pyaici/engines/vllm/conftest.py
start_vllm() { start_tests .venv-vllm --dist=loadgroup --no-loadscope-reorder "$@" "${for_vllm[@]}"; }

if [ "$choice" != all ] && [ ! -f .venv-vllm/.aici-installed ]; then in_vllm=""; fi
case $order/$in_main/$in_vllm in beside/1/1) beside=1 ;; *) beside="" ;; esac

if [ "$in_main" ]; then
    source scripts/setup.sh hf,sdk,dev
    # Compilers of other languages, a browser, a registry, and a clang that fuzzes readers of grammars. The tests of a
    # tool that cannot be fetched are skipped, but not in CI.
    more="" browser="" servers=""
    if ! wanted languages; then :; elif more=$(scripts/languages.sh); then export AICI_LANGUAGES=all; else lacking languages.sh; fi
    if ! wanted browser; then :; elif browser=$(scripts/browser.sh); then export AICI_BROWSER=yes; else lacking browser.sh; fi
    if ! wanted servers; then :; elif ! servers=$(scripts/servers.sh); then lacking servers.sh; fi
    if ! wanted clang; then :; elif scripts/clang.sh >/dev/null; then export AICI_CLANG=yes; else lacking clang.sh; fi
    if [ "$beside" ]; then source scripts/setup.sh hf,sdk,server,vllm,test; fi
    # Hypothesis takes the same examples each time, so that a run does not fail by chance: new ones are for --thorough.
    if [ "${AICI_THOROUGH:-}" ]; then examples=default; else examples=ci; fi
    # in the order of tests/conftest.py, which begins with the longest tests
    tools=$more$browser$servers start_tests .venv --maxprocesses=4 --dist=loadscope --no-loadscope-reorder \
        "--hypothesis-profile=$examples" "${for_main[@]}"
    if [ "$beside" ]; then
        report "vLLM's tests run beside the others, in one process; what they print follows the others"
        later=$(mktemp)
        start_vllm --maxprocesses=1 >"$later" 2>&1
    fi
    await_tests
    if [ "$beside" ]; then cat "$later"; fi
fi
if [ "$in_vllm" ] && [ "$beside" = "" ]; then
    source scripts/setup.sh hf,sdk,server,vllm,test
    start_vllm --maxprocesses=2
    await_tests
fi
exit "$status"
