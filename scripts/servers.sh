#!/usr/bin/env bash
# Fetches Debian's docker-registry for the tests of artifacts, without root and without installing it, and prints the
# folder to put in front of PATH. Fetches nothing if this machine has one.
#
#   PATH="$(scripts/servers.sh)$PATH"
#
# Keeps it in ~/.cache/aici/servers. Ends with status 1 and a reason if there is none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/debian.sh

say() { printf 'servers: %s\n' "$*" >&2; }

fetch_registry() {
    local package
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    say "fetching docker-registry from Debian's packages (5 MB)"
    apt_here apt-get update >/dev/null 2>&1 || return 1
    fetch_packages "$temporary/packages" docker-registry || return 1
    for package in "$temporary"/packages/*.deb; do
        dpkg-deb --extract "$package" "$temporary/root" || return 1
    done
    "$temporary/root/usr/bin/docker-registry" --version >/dev/null || return 1
    mv "$temporary/root/usr/bin" "$temporary/bin"
    mkdir -p "$home"
    rm -rf "${home:?}/bin"
    mv "$temporary/bin" "$home/bin"
}

if command -v docker-registry >/dev/null; then exit 0; fi
home=${XDG_CACHE_HOME:-$HOME/.cache}/aici/servers
mkdir -p "${home%/*}"
exec 9>"${home%/*}/servers.lock"
flock 9 2>/dev/null || true # of two scripts at once, the second one finds the work done
if [ ! -x "$home/bin/docker-registry" ]; then
    temporary=$(mktemp -d "${home%/*}/servers-XXXXXX")
    trap 'rm -rf "$temporary"' EXIT
    if ! fetch_registry; then
        say "cannot fetch docker-registry, so the tests of artifacts are skipped. As root: apt install docker-registry"
        exit 1
    fi
fi
printf '%s:' "$home/bin"
