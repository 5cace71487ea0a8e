#!/usr/bin/env bash
# Runs a campaign against the runtime and writes lab/results/CAMPAIGN.json. Its last lines are `name value unit`:
#
#   scripts/campaign.sh modules --seconds 60
#   scripts/campaign.sh                       lists the campaigns
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" = vllm ]; then
    source scripts/setup.sh hf,sdk,server,vllm,test
else
    source scripts/setup.sh hf,sdk,dev
fi
export OMP_NUM_THREADS=1
export PATH="$PWD/$environment/bin:$PATH"
exec "$environment/bin/python" -m lab.campaigns "$@"
