#!/usr/bin/env bash
# Builds the documentation's site into build/site. Warnings are errors: a broken link, a missing name or anchor.
#
#   scripts/docs.sh
#   scripts/docs.sh --serve                   serves the site on loopback instead, and follows changes
#
# Its settings are in scripts/docs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command=build
case "$*" in
    "") ;;
    --serve) command=serve ;;
    *)
        echo "docs: unknown arguments: $*; the only option is --serve" >&2
        exit 2
        ;;
esac
source scripts/setup.sh docs

export NO_MKDOCS_2_WARNING=1 # an advertisement of the theme's authors
exec .venv/bin/python -m mkdocs "$command" --strict --config-file scripts/docs/mkdocs.yml
