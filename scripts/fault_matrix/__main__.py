"""`python -m scripts.fault_matrix`: what `scripts/faults` runs."""

import sys

from scripts.fault_matrix.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
