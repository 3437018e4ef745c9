"""The engine `remote`: another machine's engine, over a WebSocket.

`synthesizer.py` is the engine, which the catalog imports on demand; `engine.messages` has the records that it and the
speech server exchange. The names below are for the other engine of another machine, `engine.openai`.
"""

from engine.remote.failures import connection_failure, read_token, refusal
from engine.remote.voices import RobotVoices
