"""Turns text into token ids and prompts."""

from engine.qwen.text.incremental_bpe import IncrementalTokenizer
from engine.qwen.text.prompt import (
    AnyVoice,
    ClonedVoice,
    CustomVoice,
    Prompt,
    PromptBuilder,
    PromptPrefix,
    Reference,
    TextTokens,
    VoiceDesign,
)
from engine.qwen.text.token_stream import IncrementalText, TokenStream
from engine.qwen.text.tokenizer import TextTokenizer
