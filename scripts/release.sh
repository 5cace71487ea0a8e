#!/usr/bin/env bash
# Builds the sdist and the wheel of a release in dist/ and checks what users will install:
#
#   scripts/release.sh                 builds and checks
#   scripts/release.sh v0.1.0          also checks that the tag fits the version and the changelog
#
# The wheel is built from the sdist. It runs in a new environment of every Python from 3.11 on that this machine has,
# with the oldest and with the newest dependencies. At the end the script prints what is to be published. It publishes
# nothing: .github/workflows/release.yml does, when a tag is pushed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tag=${1:-}

say() { printf 'release: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
if [ "$tag" ]; then
    [ "$tag" = "v$version" ] || die "the tag $tag does not fit the version $version in pyproject.toml: tag v$version"
    grep -q "^## $version, [0-9-]*$" CHANGELOG.md ||
        die "CHANGELOG.md has no heading '## $version, YYYY-MM-DD': date the section of this release"
    [ "$(git status --porcelain)" = "" ] || die "the checkout has changes that are not committed"
fi

source scripts/setup.sh sdk,dev

rm -rf dist
long .venv/bin/python -m build --no-isolation --outdir dist . >&2
long .venv/bin/python -m tests.distribution dist >&2
say "checked; these files are to be published:"
sha256sum dist/*
