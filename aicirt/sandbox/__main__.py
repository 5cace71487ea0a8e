"""`python -m aicirt.sandbox`: prints as JSON the layers of a worker that this machine allows."""

from __future__ import annotations

import json

from aicirt.sandbox import WORKER, enter

if __name__ == "__main__":
    print(json.dumps(enter(WORKER).to_wire()))
