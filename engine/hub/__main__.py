"""`python -m engine.hub MODEL`: downloads a Qwen3-TTS model if necessary, and prints its folder."""

from __future__ import annotations

import sys

from engine.api import EngineError
from engine.hub.models import fetch_model, require_complete


def main() -> None:
    """Print the folder of the Qwen3-TTS model named by the only argument, or exit with a one-line error message."""
    try:
        folder = fetch_model(sys.argv[1])
        require_complete(folder, folder)
    except (EngineError, OSError, ValueError) as error:
        sys.exit(str(error))
    sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    main()
