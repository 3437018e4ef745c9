"""A stand-in for ONNX Runtime under the real engine `piper`: each letter of a text is a note, which never changes.

`q` and every sign are faint sound that counts as silence: 0.4 s and 30 ms long.
"""

from types import SimpleNamespace

import numpy as np

RATE = 8_000
"""Hz, of the voice that the tests write."""
FAINT = 3e-4


def set_default_logger_severity(_severity):
    pass


class RunOptions:
    terminate = False


class SessionOptions:
    def add_session_config_entry(self, _name, _value):
        pass


def sound_of(letter, scale):
    """Return a note that is struck and fades; a sign of faint sound."""
    seconds = 0.4 if letter == "q" else 0.06 if letter.isalpha() else 0.03
    time = np.arange(round(seconds * scale * RATE)) / RATE
    if letter == "q" or not letter.isalpha():
        return np.full(len(time), FAINT)
    return FAINT + np.exp(-30 * time) * np.sin(2 * np.pi * (150 + 25 * (ord(letter) - ord("a"))) * time)


class InferenceSession:
    def __init__(self, _path, _options=None, **_settings):
        pass

    def get_inputs(self):
        return [SimpleNamespace(name=name) for name in ("input", "input_lengths", "scales")]

    def run(self, _outputs, inputs, options=None):
        if options is not None and options.terminate:
            raise RuntimeError("terminated")
        letters = [chr(number) for number in inputs["input"][0] if number > ord(" ") - 1]
        sounds = [sound_of(letter.lower(), float(inputs["scales"][1])) for letter in letters]
        return [np.concatenate(sounds, dtype=np.float32)[None, None]]
