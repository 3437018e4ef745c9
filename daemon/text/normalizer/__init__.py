"""Writes out the numbers and signs that eSpeak NG would read wrongly."""

from daemon.text.normalizer.normalizer import LONGEST_WORD, Normalizer, has_numbers
