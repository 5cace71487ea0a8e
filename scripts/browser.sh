#!/usr/bin/env bash
# Fetches Chromium for the tests of the playground, without root and without installing it, and prints the folder to
# put in front of PATH. Fetches nothing if this machine has a browser.
#
#   PATH="$(scripts/browser.sh)$PATH"
#
# Keeps it in ~/.cache/aici/browser. Ends with status 1 and a reason if there is no browser.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/debian.sh

say() { printf 'browser: %s\n' "$*" >&2; }

# unpacks Debian's package, its dependencies and fonts, without installing them
fetch_chromium() {
    local root=$temporary/root package
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    say "fetching Chromium from Debian's packages (over 100 MB): a minute, once"
    apt_here apt-get update >/dev/null 2>&1 || return 1
    fetch_packages "$temporary/packages" chromium fonts-dejavu-core || return 1
    mkdir -p "$root/bin"
    for package in "$temporary"/packages/*.deb; do
        dpkg-deb --extract "$package" "$root" || return 1
    done
    wrap_chromium "$root"
    works "$root/bin/chromium" || return 1
    rm -rf "$home"
    mv "$root" "$home"
}

# The libraries lie beside the program, where the loader does not search. So do fonts, for a machine without any.
wrap_chromium() {
    cat >"$1/bin/chromium" <<'EOF'
#!/bin/sh
root=$(dirname "$(dirname "$(readlink -f "$0")")")
for folder in "$root"/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu "$root"/usr/lib/*-linux-gnu/pulseaudio; do
    LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
[ -e /etc/fonts/fonts.conf ] || export FONTCONFIG_FILE="$root/fonts.conf"
exec "$root/usr/lib/chromium/chromium" "$@"
EOF
    chmod +x "$1/bin/chromium"
    cat >"$1/fonts.conf" <<EOF
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir>/usr/share/fonts</dir>
  <dir>$home/usr/share/fonts</dir>
  <cachedir>$home/fonts</cachedir>
</fontconfig>
EOF
}

# The program must load a page: some packages only refer to another store, and a library may be too old.
works() {
    timeout 60 "$1" --headless --no-sandbox --disable-gpu --user-data-dir="$temporary/profile" \
        --dump-dom about:blank 2>/dev/null | grep -q '<html>'
}

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
home=${XDG_CACHE_HOME:-$HOME/.cache}/aici/browser
mkdir -p "${home%/*}"
exec 9>"${home%/*}/browser.lock"
flock 9 2>/dev/null || true # of two scripts at once, the second one finds the work done
if [ ! -x "$home/bin/chromium" ]; then
    temporary=$(mktemp -d "${home%/*}/browser-XXXXXX")
    trap 'rm -rf "$temporary"' EXIT
    if ! fetch_chromium; then
        say "cannot fetch Chromium, so the tests of the playground are skipped. As root: apt install chromium"
        exit 1
    fi
fi
printf '%s:' "$home/bin"
