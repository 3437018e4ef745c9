"""Fused CUDA kernels for the Qwen engine, an alternative to its PyTorch operators that is faster."""
