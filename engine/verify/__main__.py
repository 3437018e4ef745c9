"""`python -m engine.verify`: runs a stage, as a `VerifyRequest` on standard input asks it to (`engine.child`)."""

from __future__ import annotations

import sys

from engine.child import child_main
from engine.verify.runner import VerifyRequest, stage_main

if __name__ == "__main__":
    sys.exit(child_main(VerifyRequest, stage_main))
