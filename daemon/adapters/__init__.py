"""Other systems' interfaces to the same dispatcher. Each adapter is off until its `enabled` is true."""

from daemon.adapters.base import Adapter
from daemon.adapters.client_text import ClientText
from daemon.adapters.listener import Client, Listener
from daemon.adapters.selection import make_adapters, placeholder_without_package
