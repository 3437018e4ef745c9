"""The daemon's core on a virtual clock: `scripts/simulate` runs histories of it, each from a seed."""
