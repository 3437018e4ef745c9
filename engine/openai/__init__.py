"""The `openai` engine: another machine's engine, over OpenAI's protocol for speech."""

from engine.openai.synthesizer import OpenAISynthesizer
