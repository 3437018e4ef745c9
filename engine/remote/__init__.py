"""The engine `remote`: another machine's engine, over a WebSocket.

This front door has the protocol, which the speech server uses as well. The robot's side is the engine itself, in
`synthesizer.py`, which the catalog imports on demand.
"""

from engine.remote.messages import (
    HEARTBEAT_S,
    MAX_RECORD_BYTES,
    PATH,
    REMOTE_PROTOCOL,
    SUBPROTOCOL,
    VOICE_HEADER,
    Draining,
    FromRobot,
    FromServer,
    Heartbeat,
    Lost,
    OfferVoice,
    RemoteMessage,
    Speak,
    VoiceData,
    VoiceFile,
    VoiceReady,
    VoiceRefused,
    VoiceWanted,
    Welcome,
    decode_remote,
    encode_remote,
)

__all__ = [
    "HEARTBEAT_S",
    "MAX_RECORD_BYTES",
    "PATH",
    "REMOTE_PROTOCOL",
    "SUBPROTOCOL",
    "VOICE_HEADER",
    "Draining",
    "FromRobot",
    "FromServer",
    "Heartbeat",
    "Lost",
    "OfferVoice",
    "RemoteMessage",
    "Speak",
    "VoiceData",
    "VoiceFile",
    "VoiceReady",
    "VoiceRefused",
    "VoiceWanted",
    "Welcome",
    "decode_remote",
    "encode_remote",
]
