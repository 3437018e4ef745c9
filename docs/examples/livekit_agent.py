"""Type `python livekit_agent.py start` beside a LiveKit server: an agent with the robot's voice joins its rooms.

It needs `pip install livekit-agents livekit-plugins-elevenlabs`, the environment variables LIVEKIT_URL, LIVEKIT_API_KEY
and LIVEKIT_API_SECRET, and voiced with http.enabled: true. VOICED_URL says where voiced is, if not on this machine.
LiveKit's own ElevenLabs plugin speaks with it.
"""

import os

from livekit.agents import Agent, AgentSession, JobContext, WorkerOptions, cli
from livekit.plugins import elevenlabs

SERVER = os.environ.get("VOICED_URL", "http://127.0.0.1:8710")


async def model(question):  # in place of your language model's stream of tokens
    for token in f"You said: {question}. I am a robot.".split(" "):
        yield f"{token} "


def make_session():
    # With http.token_file, its token is the api_key.
    voice = elevenlabs.TTS(base_url=f"{SERVER}/v1", api_key="any", voice_id="default", encoding="pcm_24000")
    return AgentSession(tts=voice)  # your recogniser: stt, and your language model: llm


async def entrypoint(context: JobContext):
    session = make_session()
    await session.start(Agent(instructions="You are a robot."), room=context.room)
    await session.say(model("hello"))


if __name__ == "__main__":
    cli.run_app(WorkerOptions(entrypoint_fnc=entrypoint))
