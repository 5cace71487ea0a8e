#!/usr/bin/env bash
# Fetches packages of Debian without root and without installing them: for scripts that source this one.
#
# They name in $temporary a folder that they remove themselves.

# apt's own words, with lists and archives in a folder of ours
apt_here() {
    # shellcheck disable=SC2154 # of the script that sources this one
    local folder=$temporary/apt
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    "$1" -qq -o "Dir::State::Lists=$folder/lists" -o "Dir::Cache=$folder/cache" -o Debug::NoLocking=1 \
        -o "APT::Sandbox::User=$(id -un)" "${@:2}"
}

# FOLDER PACKAGE...: puts the packages, and what they need that this machine does not have, into a folder
fetch_packages() {
    local names
    names=$(apt_here apt-get install --simulate --no-install-recommends "${@:2}" |
        sed -n 's/^Inst \([^ ]*\).*/\1/p') || return 1
    mkdir -p "$1"
    # shellcheck disable=SC2086 # a list of names
    (cd "$1" && apt_here apt-get download $names >/dev/null 2>&1)
}
