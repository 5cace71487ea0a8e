#!/usr/bin/env bash
# Functions that fetch packages of Debian without root and without installing them. Other scripts source this one.
#
# $temporary must name a folder, which the sourcing script removes.

# COMMAND ARGUMENT...: runs a command of apt with lists and archives in $temporary
apt_here() {
    # shellcheck disable=SC2154 # set by the sourcing script
    local folder=$temporary/apt
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    "$1" -qq -o "Dir::State::Lists=$folder/lists" -o "Dir::Cache=$folder/cache" -o Debug::NoLocking=1 \
        -o "APT::Sandbox::User=$(id -un)" "${@:2}"
}

# FOLDER PACKAGE...: downloads the packages, and their dependencies that this machine lacks, into a folder
fetch_packages() {
    local names
    names=$(apt_here apt-get install --simulate --no-install-recommends "${@:2}" |
        sed -n 's/^Inst \([^ ]*\).*/\1/p') || return 1
    mkdir -p "$1"
    # shellcheck disable=SC2086 # a list of names
    (cd "$1" && apt_here apt-get download $names >/dev/null 2>&1)
}
