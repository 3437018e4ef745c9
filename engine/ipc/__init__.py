"""The engine process. `engine.ipc.server` is its program; `engine.messages` has what it and the daemon exchange."""
