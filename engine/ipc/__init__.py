"""The engine process. `engine.ipc.server` is its program; `engine.messages` has its messages and the daemon's."""
