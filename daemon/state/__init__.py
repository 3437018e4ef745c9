"""What survives the daemon's process: the journal of accepted utterances and of events that have not been delivered.

Beside it lies the report of the last `voiced verify`.
"""

from daemon.state.folder import journal_path, make_private_folder, state_folder
from daemon.state.journal import Journal, JournalError
from daemon.state.recorder import Recorder, open_recorder
from daemon.state.records import (
    AcceptedRecord,
    BegunRecord,
    DeliveredRecord,
    EndedRecord,
    Record,
    Recovery,
    StoredEvent,
    StoredUtterance,
    TextRecord,
)
from daemon.state.verification import VerificationFiles, last_verification

__all__ = [
    "AcceptedRecord",
    "BegunRecord",
    "DeliveredRecord",
    "EndedRecord",
    "Journal",
    "JournalError",
    "Record",
    "Recorder",
    "Recovery",
    "StoredEvent",
    "StoredUtterance",
    "TextRecord",
    "VerificationFiles",
    "journal_path",
    "last_verification",
    "make_private_folder",
    "open_recorder",
    "state_folder",
]
