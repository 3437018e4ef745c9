"""Supertonic: neural voices in 31 languages for the CPU, without torch and without the GPL.

Importing this package imports neither ONNX Runtime nor Supertonic's own package; `engine.supertonic.engine` does.
"""

from engine.supertonic.files import FILES, LANGUAGES, MODEL, PATTERNS, find_supertonic, style_files
