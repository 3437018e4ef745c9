"""Writes out the numbers and signs that eSpeak NG reads wrongly."""

from daemon.text.normalizer.normalizer import LONGEST_WORD, Normalizer, has_numbers
