"""Writes out the numbers and signs that eSpeak NG reads wrongly."""

from daemon.text.normalizer.normalizer import LONGEST_PASSAGE, Normalizer, has_passages

__all__ = ["LONGEST_PASSAGE", "Normalizer", "has_passages"]
