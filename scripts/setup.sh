#!/usr/bin/env bash
# Creates a Python environment for this checkout and builds the controllers. It needs only Python 3.11 or newer.
#
#   scripts/setup.sh [EXTRAS]      EXTRAS of the package, default: hf,sdk,dev
#
# The environment is .venv, or .venv-vllm if the extras include vllm, since vLLM requires exact versions of packages.
# Other scripts source this one, so that they need not pass on signals. It sets $environment, the path of the
# environment, and defines `long`, which runs commands that take long. It is fast when nothing changed. Variables:
#   AICI_PYTHON   the Python to use; default: the first of python3.11 3.12 3.13 3 that is new enough
#   AICI_TORCH    the requirement of torch for pip, with options; default: torch==2.13.0, the tested version.
#                 PyPI has the CUDA build (several GB). For a machine without a GPU add the index of PyTorch's CPU
#                 builds: AICI_TORCH="torch==2.13.0 --extra-index-url URL". Not used for vLLM on a GPU.
#                 The hashes of all packages are checked, which scripts/locks pins, except those of torch and of the
#                 CUDA packages that it requires. scripts/install.py installs them.
#   AICI_DEVICE   cpu or gpu: the vLLM to install; default: gpu if there is an NVIDIA GPU
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Images of containers often set it. Every process of a daemon would then compile the modules it imports.
unset PYTHONDONTWRITEBYTECODE

extras=${1:-hf,sdk,dev}
torch=${AICI_TORCH:-torch==2.13.0}
vllm="" # cpu, gpu, or none
environment=.venv
locks=(scripts/locks/llama.txt scripts/locks/hf.txt scripts/locks/dev.txt)
case ",$extras," in
    *,vllm,*)
        environment=.venv-vllm
        vllm=cpu
        if [ -e /dev/nvidia0 ] || command -v nvidia-smi >/dev/null; then vllm=gpu; fi
        vllm=${AICI_DEVICE:-$vllm}
        locks=("scripts/locks/vllm-$vllm.txt")
        ;;
esac

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Runs a command that takes long. A signal ends the command even if only this script gets the signal.
long() {
    local status=0
    "$@" <&0 &
    child=$!
    trap 'stop 130 interrupted' INT
    trap 'stop 143 "ended by SIGTERM"' TERM
    wait "$child" || status=$?
    trap - INT TERM
    return "$status"
}

stop() {
    kill "$child" 2>/dev/null || true
    wait "$child" || true
    say "$2"
    exit "$1"
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local name seen=""
    for name in ${AICI_PYTHON:-python3.11 python3.12 python3.13 python3}; do
        command -v "$name" >/dev/null || continue
        if new_enough "$name"; then
            command -v "$name"
            return
        fi
        seen+=" $name is $("$name" --version 2>&1 | head -n 1);"
    done
    die "Python 3.11 or newer is needed;${seen:- none was found}. Install one, or set AICI_PYTHON=/path/to/python3.11"
}

make_environment() {
    local python
    if [ -x $environment/bin/python ] && new_enough $environment/bin/python; then
        # pip is complete: its RECORD is written last
        if compgen -G "$environment/lib/python3*/site-packages/pip-*.dist-info/RECORD" >/dev/null; then return; fi
    fi
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python has no venv module; on Debian and Ubuntu: apt install $(basename "$python")-venv"
    long "$python" scripts/install.py --create $environment >&2 || exit
}

# Everything that the installation depends on. Changes to settings of tools, or to code, install nothing.
fingerprint() {
    {
        sed '/^\[tool\.ruff\]/,$d' pyproject.toml
        cat hatch_build.py
        echo "$torch"
        $environment/bin/python --version
        cat "${locks[@]}"
    } | sha256sum | cut -d ' ' -f 1
}

# The stamp has the fingerprint and the installed extras. The function adds missing extras.
install() {
    local stamp=$environment/.aici-installed now was="" had="" all extra lock what=()
    now=$(fingerprint)
    if [ -f "$stamp" ]; then
        read -r was had <"$stamp"
    fi
    all=$had
    for extra in ${extras//,/ }; do
        case ",$all," in *",$extra,"*) ;; *) all=${all:+$all,}$extra ;; esac
    done
    if [ "$now $all" = "$was $had" ]; then
        return
    fi
    case "$vllm/,$all," in cpu/* | /*,hf,*) read -ra what <<<"$torch" ;; esac
    # Of .venv, the first lock is for llama, sdk and server, the second one also for hf, the last one for all extras.
    lock=${locks[0]}
    for extra in ${all//,/ }; do
        case $extra in
            llama | sdk | server | client) ;;
            hf) [ "$lock" = "${locks[-1]}" ] || lock=${locks[1]:-$lock} ;;
            *) lock=${locks[-1]} ;;
        esac
    done
    say "installing pyaici[$all]${what[*]:+ ${what[*]}}: a minute, once"
    long $environment/bin/python scripts/install.py "$lock" "${what[@]}" >&2 || exit
    echo "$now $all" >"$stamp"
}

# Of two scripts at once, the second one finds the work done.
wait_for_lock() {
    local status=0 waited=0
    while flock --nonblock 9 2>/dev/null || status=$?; [ "$status" = 1 ]; do
        say "another script sets up this folder; waiting for it, $waited s"
        sleep 5
        status=0 waited=$((waited + 5))
    done
}

# Builds all controllers, or only those that $controllers names: all of them take minutes at the first time.
build() {
    local name
    if [ -z "${controllers+set}" ]; then
        long $environment/bin/python -m pyaici.toolchain --quiet >&2
        return
    fi
    for name in $controllers; do
        say "building the controller $name"
        long $environment/bin/python -m pyaici.toolchain "controllers/$name" --out "pyaici/_wasm/$name.wasm" >&2
    done
}

[ "$(uname -s)" = Linux ] || die "aici runs on Linux only; elsewhere use a container (.devcontainer) or WSL 2"
cache=${XDG_CACHE_HOME:-}
case $cache in /*) ;; *) cache=~/.cache ;; esac # as the programs do
{ mkdir -p "$cache/aici" && [ -w "$cache/aici" ]; } 2>/dev/null ||
    die "cannot write to $cache/aici: set XDG_CACHE_HOME to a folder that you can write, for models and compiled code"
[ -w . ] || die "cannot write to $PWD: clone the repository to a folder that you can write"
exec 9>.setup.lock
wait_for_lock
make_environment
install
case ",$extras," in *,sdk,* | *,dev,*) build ;; esac
exec 9>&- # for scripts that source this one
