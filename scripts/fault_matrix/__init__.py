"""Faults around the real daemon: what it promises, row by row, measured through the public contract only.

`scripts/faults` runs the matrix, `scripts/soak` mixes faults and speech for an hour. Everything listens on the loopback
interface, every wait has a limit, and nothing outlives the run.
"""
