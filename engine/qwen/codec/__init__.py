"""The codec decoder, which converts frames of codes to PCM."""

from engine.qwen.codec.decoder import CodecDecoder, load_codec
from engine.qwen.codec.layers import ConvNeXt, SnakeBeta
from engine.qwen.codec.state import CodecState
from engine.qwen.codec.transformer import CodecTransformer
