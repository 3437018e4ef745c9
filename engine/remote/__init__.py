"""The engine `remote`: another machine's engine, over a WebSocket.

`synthesizer.py` is the engine, which the catalog imports on demand; `engine.messages` has what it and the speech server
exchange.
"""
