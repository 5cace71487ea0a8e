#!/usr/bin/env bash
# Fetches the compilers of Rust and AssemblyScript for the tests of controllers in these languages, without root, and
# prints the folders to put in front of PATH. Fetches no compiler that this machine has.
#
#   PATH="$(scripts/languages.sh)$PATH"
#
# Keeps them in ~/.cache/aici/languages. Ends with status 1 and a reason if a compiler cannot be fetched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/debian.sh

home=${XDG_CACHE_HOME:-$HOME/.cache}/aici/languages
wasm=wasm32-unknown-unknown
mkdir -p "$home"
exec 9>"$home/.lock"
flock 9 2>/dev/null || true # of two scripts at once, the second one finds the work done
temporary=$(mktemp -d "$home/.new-XXXXXX")
trap 'rm -rf "$temporary"' EXIT

say() { printf 'languages: %s\n' "$*" >&2; }

# ---- Rust: cargo, rustc, and the standard library for Wasm ---------------------------------------------------------

has_rust() {
    local libraries
    command -v cargo >/dev/null || return 1
    libraries=$(rustc --print target-libdir --target $wasm 2>/dev/null) || return 1
    compgen -G "$libraries/libstd-*.rlib" >/dev/null
}

# Debian has a new Rust, with the source of its library, besides its old one. Unpacks the packages without installing.
fetch_rust() {
    local root=$home/rust linker
    [ -d "$root" ] && return
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null && command -v cc >/dev/null || return 1
    say "fetching Rust from Debian's packages (150 MB) and compiling its library for Wasm: a minute, once"
    mkdir "$temporary/rust"
    apt_here apt-get update >/dev/null 2>&1 || return 1
    linker=$(apt_here apt-cache depends rust-web-llvm 2>/dev/null | sed -n 's/.*Depends: llvm-\([0-9]*\)$/lld-\1/p')
    [ -n "$linker" ] || return 1
    fetch_packages "$temporary/packages" rustc-web cargo-web rust-web-src "$linker" || return 1
    for package in "$temporary"/packages/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$temporary/rust" --exclude=./usr/share \
            --no-wildcards-match-slash --exclude='./usr/src/*/compiler' --exclude='./usr/src/*/src' || return 1
    done
    ln -s "$linker" "$temporary/rust/usr/bin/rust-lld" # the name that rustc uses
    wrap_rust "$root"
    compile_library "$root" || return 1
    mv "$temporary/rust" "$root"
}

# The libraries lie beside the programs, where the loader does not search. cargo finds rustc in PATH.
wrap_rust() {
    local name
    mkdir "$temporary/rust/bin"
    for name in cargo rustc rustdoc; do
        cat >"$temporary/rust/bin/$name" <<EOF
#!/bin/sh
root=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")
export LD_LIBRARY_PATH="\$(echo "\$root"/usr/lib/*-linux-gnu)" PATH="\$root/usr/bin:\$PATH"
exec "\$root/usr/bin/$name" "\$@"
EOF
        chmod +x "$temporary/rust/bin/$name"
    done
}

# The standard library as rustup would bring it: objects for every link, bitcode for those with lto.
compile_library() {
    local library crate=$temporary/crate
    library=$(echo "$temporary"/rust/usr/src/*/library)
    mkdir -p "$crate/src" "$temporary/rust/usr/lib/rustlib/$wasm/lib"
    printf '[package]\nname = "nothing"\nedition = "2021"\n' >"$crate/Cargo.toml"
    : >"$crate/src/lib.rs"
    (cd "$crate" && RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes CARGO_TARGET_DIR=$crate/target \
        CARGO_HOME=$crate/home "$temporary/rust/bin/cargo" build --quiet --release --offline --target $wasm \
        --config 'unstable.build-std = ["std", "panic_abort"]' \
        --config 'source.crates-io.replace-with = "library"' \
        --config "source.library.directory = \"$library/vendor\"") || return 1
    rm "$crate/target/$wasm/release/deps/"libnothing-*
    mv "$crate/target/$wasm/release/deps/"*.rlib "$temporary/rust/usr/lib/rustlib/$wasm/lib/"
    rm -r "$temporary"/rust/usr/src "$temporary"/rust/usr/lib/rustlib/src
}

# ---- AssemblyScript: asc, which runs on Node.js ----------------------------------------------------------------------

# The starter project pins its version and the hashes of all dependencies.
fetch_assemblyscript() {
    local root=$home/assemblyscript starter=pyaici/cli/templates/assemblyscript version
    version=$(sha256sum <"$starter/package-lock.json")
    [ "$(cat "$root/version" 2>/dev/null)" = "$version" ] && return
    command -v npm >/dev/null || return 1
    say "fetching AssemblyScript from npm"
    mkdir "$temporary/assemblyscript"
    cat "$starter/package.json" >"$temporary/assemblyscript/package.json"
    cat "$starter/package-lock.json" >"$temporary/assemblyscript/package-lock.json"
    npm ci --silent --no-audit --no-fund --prefix "$temporary/assemblyscript" >&2 || return 1
    echo "$version" >"$temporary/assemblyscript/version"
    rm -rf "$root"
    mv "$temporary/assemblyscript" "$root"
}

# ---- find or fetch ---------------------------------------------------------------------------------------------------

status=0
if has_rust; then
    :
elif fetch_rust; then
    printf '%s:' "$home/rust/bin"
else
    say "cannot fetch Rust for Wasm, so its tests are skipped. With rustup: rustup target add $wasm"
    status=1
fi
if command -v asc >/dev/null; then
    :
elif fetch_assemblyscript; then
    printf '%s:' "$home/assemblyscript/node_modules/.bin"
else
    say "cannot fetch AssemblyScript, so its tests are skipped. It needs npm, which Node.js includes"
    status=1
fi
exit $status
