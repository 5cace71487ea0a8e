#!/usr/bin/env bash
# Makes a Python environment of this checkout and builds the controllers; needs Python 3.11 or newer only.
#
#   scripts/setup.sh [EXTRAS]      EXTRAS of the package, default hf,sdk,dev
#
# The environment is .venv, or with vllm among the extras .venv-vllm: vLLM wants packages in versions of its own.
# Other scripts source this one, so that a signal to them need not be passed on. They find its path in
# $environment, and `long` for what may take long. Quick when nothing changed. Variables:
#   AICI_PYTHON   the Python to use, default: the first of python3.11 3.12 3.13 3 that is new enough
#   AICI_TORCH    what pip shall install for torch, with options if you like; default torch==2.13.0, which is
#                 the version that is tested. From PyPI that is the CUDA build (several GB); for a machine
#                 without a GPU name the index of PyTorch's CPU builds as well:
#                 AICI_TORCH="torch==2.13.0 --extra-index-url URL". For vLLM on a GPU it is not used.
#                 It is the only package, with the CUDA packages that it asks for, whose hash is not checked:
#                 all others are in scripts/locks.
#   AICI_DEVICE   cpu or gpu: which vLLM to install; default: gpu if there is one of NVIDIA
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extras=${1:-hf,sdk,dev}
torch=${AICI_TORCH:-torch==2.13.0}
vllm="" # which one, if any
environment=.venv
locks=(scripts/locks/hf.txt scripts/locks/dev.txt)
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

# Runs a command that takes long, in such a way that a signal ends it even if only this script gets it.
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
    die "Python 3.11 or newer is needed;${seen:- none was found}. Install one, or name it: AICI_PYTHON=/path/to/python3.11"
}

make_environment() {
    local python
    if [ -x $environment/bin/python ] && new_enough $environment/bin/python; then
        return
    fi
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python has no venv module; on Debian and Ubuntu: apt install $(basename "$python")-venv"
    say "making $environment with $("$python" --version)"
    long "$python" -m venv --clear $environment
}

# What is installed depends on these; a commit that changes only settings of tools, or code, installs nothing.
fingerprint() {
    {
        sed '/^\[tool\.ruff\]/,$d' pyproject.toml
        cat hatch_build.py
        echo "$torch"
        $environment/bin/python --version
        cat "${locks[@]}"
    } | sha256sum | cut -d ' ' -f 1
}

# The stamp holds the fingerprint and the extras that are there; others are added to them.
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
    # the first lock has what hf and sdk need, the last one everything
    lock=${locks[0]}
    for extra in ${all//,/ }; do
        case $extra in hf | sdk) ;; *) lock=${locks[-1]} ;; esac
    done
    say "installing aici[$all] ${what[*]}: some minutes, once"
    pip --no-deps --require-hashes --requirement "$lock"
    # What torch needs of these is there, so pip fetches torch itself, and the CUDA packages if it is that build. Others
    # ask for triton, which is of no use without CUDA; pip would complain that it is missing.
    if [ ${#what[@]} -gt 0 ]; then pip --no-warn-conflicts "${what[@]}"; fi
    pip --no-deps --no-build-isolation --editable .
    echo "$now $all" >"$stamp"
}

pip() { long $environment/bin/python -m pip install -qq --disable-pip-version-check "$@"; }

[ "$(uname -s)" = Linux ] || die "aici runs on Linux only; elsewhere use a container (.devcontainer) or WSL 2"
exec 9>.setup.lock
flock 9 2>/dev/null || true # two scripts at once: the second finds the work done
make_environment
install
case ",$extras," in *,sdk,* | *,dev,*) long $environment/bin/python -m pyaici.build --quiet >&2 ;; esac
exec 9>&- # for scripts that source this one
