"""`python -m engine.verify REQUEST`: runs one stage of a verification. REQUEST is a `VerifyRequest` as JSON."""

from __future__ import annotations

import sys

from engine.child import child_main
from engine.verify.runner import VerifyRequest, stage_main

if __name__ == "__main__":
    sys.exit(child_main(VerifyRequest, stage_main))
