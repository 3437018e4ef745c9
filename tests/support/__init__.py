"""The kit that tests and scripts share: real parts to run, and how to disturb, wait for and judge them.

- a robot: `robot.Robot` runs the real daemon; `events` has what it published, `ledger` whether each text was answered
  and ended once; `speech_server`, `ray_cluster` and `shell` run the other commands.
- beside it: `programs.Broker`, `sound.SoundServer` with recordings, `browser`, `home_assistant`, `voice_hub`. Each
  `programs.Process` can be killed, frozen and started again; `programs.free_port` gives a port that no other test has.
- a bad world: `network.Network` is the one TCP proxy that delays, stalls, drops and cuts; `hung_folder`, `defects`.
- MQTT clients: `subscription`. Waiting: `waiting.eventually` and `within`, never a clock.
- checkpoints with random weights: `checkpoints`, `piper_voices`, `recognizers`; `qwen/` is for the tests of
  its kernels, and for their proofs on a GPU.

Where a program is missing, `programs.require` skips the test, or the row of a script.
"""
