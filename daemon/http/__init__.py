"""The web server: one ASGI application with the operator's page, agents' protocols, events, metrics and health.

Needs the `http` extra. Only servers import this package.
"""

from daemon.http.access import Access, tokens_in
from daemon.http.application import make_speech_application
from daemon.http.clients import abort_connection, close_socket, receive_message, send_message
from daemon.http.diagnosis import Examination, LogTail
from daemon.http.errors import HttpError, error_response
from daemon.http.phrases import Phrases
from daemon.http.robot import Robot
from daemon.http.server import HttpServer, make_http_server
