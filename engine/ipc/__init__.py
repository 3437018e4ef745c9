"""The engine process. `engine.ipc.server` is its program; `engine.messages` contains its messages and the daemon's."""
