#!/usr/bin/env bash
# Fetches clang with libFuzzer and the sanitizers for 32 bits, without root and without installing it, and prints its
# folder. `bin/clang++` there compiles programs with 32-bit sizes and addresses, as guests have.
#
#   "$(scripts/clang.sh)/bin/clang++" -fsanitize=fuzzer,address target.cpp
#
# Keeps it in ~/.cache/aici/clang. Ends with status 1 and a reason if it cannot be fetched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/debian.sh

version=19
home=${XDG_CACHE_HOME:-$HOME/.cache}/aici/clang

say() { printf 'clang: %s\n' "$*" >&2; }

fetch_clang() {
    local root=$temporary/root package
    [ "$(uname -m)" = x86_64 ] || return 1
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null && command -v c++ >/dev/null || return 1
    say "fetching clang from Debian's packages (70 MB): half a minute, once"
    apt_here apt-get update >/dev/null 2>&1 || return 1
    fetch_packages "$temporary/packages" "clang-$version" "libclang-rt-$version-dev" lib32stdc++-12-dev \
        libc6-dev-i386 || return 1
    mkdir -p "$root/bin"
    for package in "$temporary"/packages/*.deb; do
        dpkg-deb --extract "$package" "$root" || return 1
    done
    ln -sf ../lib32/ld-linux.so.2 "$root/lib/ld-linux.so.2" # not an absolute link
    wrap_clang "$root"
    echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned) { return 0; }' >"$temporary/try.cpp"
    "$root/bin/clang++" -fsanitize=fuzzer,address "$temporary/try.cpp" -o "$temporary/try" || return 1
    "$temporary/try" -runs=1 >/dev/null 2>&1 || return 1
    rm -rf "$home"
    mv "$root" "$home"
}

# The libraries and headers, also those for 32 bits, lie in the folder, where neither the loader nor a linker
# searches. The headers of the C++ library are this machine's.
wrap_clang() {
    cat >"$1/bin/clang++" <<WRAPPER
#!/bin/sh
root=\$(dirname "\$(dirname "\$(readlink -f "\$0")")")
export LD_LIBRARY_PATH="\$(echo "\$root"/usr/lib/x86_64-linux-gnu)"
gcc=\$root/usr/lib/gcc/x86_64-linux-gnu/12/32
exec "\$root/usr/lib/llvm-$version/bin/clang++" -m32 \\
    -stdlib++-isystem /usr/include/c++/12 -isystem "\$root/usr/include/x86_64-linux-gnu/c++/12/32" \\
    -isystem /usr/include/x86_64-linux-gnu -isystem "\$root/usr/include" \\
    --start-no-unused-arguments -B"\$root/usr/lib32" -B"\$gcc" -L"\$root/usr/lib32" -L"\$root/lib32" -L"\$gcc" \\
    -Wl,--sysroot="\$root" -Wl,--dynamic-linker="\$root/lib32/ld-linux.so.2" \\
    -Wl,-rpath="\$root/usr/lib32:\$root/lib32" -Wl,--disable-new-dtags --end-no-unused-arguments "\$@"
WRAPPER
    chmod +x "$1/bin/clang++"
}

mkdir -p "${home%/*}"
exec 9>"${home%/*}/clang.lock"
flock 9 2>/dev/null || true # of two scripts at once, the second one finds the work done
if [ ! -x "$home/bin/clang++" ]; then
    temporary=$(mktemp -d "${home%/*}/clang-XXXXXX")
    trap 'rm -rf "$temporary"' EXIT
    if ! fetch_clang; then
        say "cannot fetch clang for 32 bits, so readers of grammars are not fuzzed. It needs Debian 12 on x86_64"
        exit 1
    fi
fi
printf '%s\n' "$home"
