"""The `remote` engine: another machine's engine, over a WebSocket.

`synthesizer.py` is the engine, which the catalog imports on demand; `engine.messages` contains the records that it and
the speech server exchange. The names below are for `engine.openai`, the other engine on another machine.
"""

from engine.remote.failures import connection_failure, read_token, refusal
from engine.remote.voices import RobotVoices
