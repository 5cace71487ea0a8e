#!/usr/bin/env bash
# Makes the Python environment .venv of this checkout and builds the controllers; needs Python 3.11 or newer only.
#
#   scripts/setup.sh [EXTRAS]      EXTRAS of the package, default hf,sdk,dev
#
# scripts/hf.sh sources it, so that a signal to that one need not be passed on.
# Quick when nothing changed. Variables:
#   AICI_PYTHON   the Python to use, default: the first of python3.11 3.12 3.13 3 that is new enough
#   AICI_TORCH    what pip shall install for torch, with options if you like; default torch==2.13.0, which is
#                 the version that is tested. From PyPI that is the CUDA build (several GB); for a machine
#                 without a GPU name the index of PyTorch's CPU builds: AICI_TORCH="torch==2.13.0 --index-url URL"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extras=${1:-hf,sdk,dev}
torch=${AICI_TORCH:-torch==2.13.0}

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
    if [ -x .venv/bin/python ] && new_enough .venv/bin/python; then
        return
    fi
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python has no venv module; on Debian and Ubuntu: apt install $(basename "$python")-venv"
    say "making .venv with $("$python" --version)"
    long "$python" -m venv --clear .venv
}

# What is installed depends on these; a commit that changes only settings of tools, or code, installs nothing.
fingerprint() {
    { sed '/^\[tool\.ruff\]/,$d' pyproject.toml; cat hatch_build.py; echo "$torch"; .venv/bin/python --version; } |
        sha256sum | cut -d ' ' -f 1
}

# The stamp holds the fingerprint and the extras that are there; others are added to them.
install() {
    local stamp=.venv/.aici-installed now was="" had="" all extra what=()
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
    case ",$all," in *,hf,*) read -ra what <<<"$torch" ;; esac
    say "installing aici[$all] ${what[*]}: some minutes, once"
    long .venv/bin/python -m pip install -qq --disable-pip-version-check "${what[@]}" --editable ".[$all]"
    echo "$now $all" >"$stamp"
}

[ "$(uname -s)" = Linux ] || die "aici runs on Linux only; elsewhere use a container (.devcontainer) or WSL 2"
exec 9>.setup.lock
flock 9 2>/dev/null || true # two scripts at once: the second finds the work done
make_environment
install
case ",$extras," in *,sdk,* | *,dev,*) long .venv/bin/python -m pyaici.build --quiet >&2 ;; esac
exec 9>&- # for scripts that source this one
