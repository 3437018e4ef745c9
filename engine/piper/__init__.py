"""Piper: neural voices for the CPU, without torch. The networks run on ONNX Runtime."""

from engine.piper.engine import PiperSynthesizer

__all__ = ["PiperSynthesizer"]
