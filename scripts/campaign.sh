#!/usr/bin/env bash
# Runs a campaign against the runtime and writes bench/results/CAMPAIGN.json. Its last lines are `name value unit`:
#
#   scripts/campaign.sh modules --seconds 60
#   scripts/campaign.sh                       lists the campaigns
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh hf,sdk,dev
export OMP_NUM_THREADS=1
export PATH="$PWD/.venv/bin:$PATH"
exec .venv/bin/python -m bench.campaigns "$@"
