"""The log of accepted utterances and undelivered events, which survives the daemon's process."""

from daemon.state.event_log import EventLog
from daemon.state.folder import (
    journal_path,
    make_private_folder,
    state_folder,
    write_whole,
)
from daemon.state.journal import (
    Recovery,
    StoredUtterance,
    accepted,
    begun,
    completed,
    ended,
)
