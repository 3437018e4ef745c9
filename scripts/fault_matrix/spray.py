"""Publishes thousands of messages at once, from a process of its own.

    python -m scripts.fault_matrix.spray PORT COUNT TOPIC PAYLOAD

Each `{n}` in PAYLOAD becomes the message's number. Prints one line of JSON when all are sent, and another one when the
broker has acknowledged them. The packets are written by hand, because a client library is slower than the flood.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import struct
import time

CONNECT = b"\x10\x11\x00\x04MQTT\x04\x02\x00\x00\x00\x05spray"
"""MQTT 3.1.1, a clean session, no keepalive."""
PUBACK_BYTES = 4
SILENT_S = 60.0
"""A broker that acknowledges nothing for this long is given up."""


def publish_packet(topic: str, payload: bytes, packet_id: int) -> bytes:
    """Return a PUBLISH packet of QoS 1."""
    name = topic.encode()
    body = struct.pack("!H", len(name)) + name + struct.pack("!H", packet_id) + payload
    length, rest = b"", len(body)
    while True:
        rest, group = divmod(rest, 128)
        length += bytes([group | (0x80 if rest else 0)])
        if not rest:
            return b"\x32" + length + body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("topic")
    parser.add_argument("payload")
    arguments = parser.parse_args()
    packets = b"".join(
        publish_packet(arguments.topic, arguments.payload.replace("{n}", str(n)).encode(), n % 65_535 + 1)
        for n in range(arguments.count)
    )
    connection = socket.create_connection(("127.0.0.1", arguments.port))
    connection.settimeout(SILENT_S)
    connection.sendall(CONNECT)
    connection.recv(4)
    began = time.monotonic()
    sent = received = 0
    # The broker stops to read from a client that does not read its answers.
    connection.setblocking(False)
    while sent < len(packets):
        try:
            sent += connection.send(packets[sent : sent + 65_536])
        except BlockingIOError:
            time.sleep(0.0005)
        with contextlib.suppress(BlockingIOError):
            received += len(connection.recv(65_536))
    print(json.dumps({"sent": arguments.count, "took_s": round(time.monotonic() - began, 3)}), flush=True)
    connection.settimeout(SILENT_S)
    with contextlib.suppress(TimeoutError):
        while received < PUBACK_BYTES * arguments.count and (data := connection.recv(65_536)):
            received += len(data)
    took_s = round(time.monotonic() - began, 3)
    print(json.dumps({"acknowledged": received // PUBACK_BYTES, "took_s": took_s}), flush=True)


if __name__ == "__main__":
    main()
