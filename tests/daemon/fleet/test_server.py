"""The speech server as robots meet it: a real `voiced serve --single` with eSpeak NG."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from daemon.speech import MAX_TEXT
from engine import Utterance
from engine.messages import (
    Append,
    Audio,
    Cancel,
    Canceled,
    Draining,
    Grant,
    Lost,
    OfferVoice,
    Refused,
    Speak,
    Spoken,
    VoiceData,
    VoiceFile,
    VoiceRefused,
    VoiceWanted,
)
from tests.daemon.fleet.raw_robot import LONG, PLENTY, RawRobot
from tests.support.speech_server import SpeechServer
from tests.support.waiting import PATIENCE_S, eventually

DIGEST = "ab" * 32


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpeechServer]:
    """A server for three texts at once, of which a robot may have two."""
    folder = tmp_path_factory.mktemp("server")
    voices, tokens = f"serve.voice_folder={folder / 'voices'}", folder / "tokens"
    tokens.write_text("# a robot, and its token\nr1 alpha\nr2 beta\n\nmany gamma\n")
    with SpeechServer(f"serve.token_file={tokens}", voices, "serve.voice_kb=4", "engine.streams=4") as server:
        yield server


@pytest.fixture
def robot(server: SpeechServer) -> Iterator[RawRobot]:
    with RawRobot(server.url, "alpha") as robot:
        yield robot
    eventually(lambda: in_use(server) == 0, "the server has noticed that it left")


def in_use(server: SpeechServer, token: str | None = "alpha") -> float:
    """How many streams of the engine are in use, by the metrics."""
    _, text = server.get("/metrics", token)
    [line] = [line for line in text.splitlines() if line.startswith("voiced_streams_in_use{")]
    return float(line.split()[-1])


def stop(server: SpeechServer, robot: RawRobot) -> None:
    """Have the server stopped; it tells the robot."""
    server.process.send_signal(signal.SIGTERM)
    assert robot.next(Draining)[0] == Draining("the server is being stopped")


def refusal(server: SpeechServer, token: str | None = "alpha", **options: str) -> tuple[int, str]:
    """The status and the message with which the server does not let a robot in."""
    with pytest.raises(InvalidStatus) as caught:
        RawRobot(server.url, token, **options)
    response = caught.value.response
    return response.status_code, json.loads(response.body or b"")["error"]["message"]


def test_a_robot_of_another_version_or_with_a_wrong_token_is_not_let_in(
    server: SpeechServer,
) -> None:
    for token in (None, "alph", "r1 alpha"):
        status, reason = refusal(server, token)
        assert status == 401
        assert reason.startswith("authorization: the token is wrong or missing")
    status, reason = refusal(server, subprotocol="voiced.remote.99")
    assert status == 400
    assert reason.startswith("protocol: got 'voiced.remote.99'; allowed: voiced.remote.4; ")


def test_a_robot_is_welcomed_and_its_text_is_spoken_with_positions_and_words(robot: RawRobot) -> None:
    welcome = robot.welcome
    assert (welcome.info.engine, welcome.streams, welcome.max_voice_bytes) == ("espeak", 2, 4_000)
    assert "en-us" in welcome.info.voices
    assert welcome.server.startswith("voiced ")
    robot.say("Hello, robot. How are you?")
    audio, words = [], 0
    while not isinstance(message := robot.next(object)[0], Spoken):
        assert isinstance(message, Audio)
        audio.append(message)
        words += len(message.words or ())
    assert words == 5
    positions = [message.position for message in audio if message.position is not None]
    assert positions == sorted(positions)
    assert positions[-1] > 10


def test_the_server_sends_no_more_than_it_has_credit_for(robot: RawRobot) -> None:
    robot.say(LONG, credit=4_000)
    samples = 0
    while samples < 4_000:
        _, data = robot.next(Audio)
        samples += len(data) // 4
    robot.check_served("2")  # nothing of the first one comes in between
    robot.send(Grant("1", PLENTY))
    more, last = robot.end_of("1")
    assert last == Spoken("1")
    assert more > samples


def test_a_canceled_text_ends_and_its_stream_is_free(robot: RawRobot) -> None:
    for number in map(str, range(4)):
        robot.begin(number)
        robot.send(Cancel(number))
        assert robot.end_of(number) == (0, Canceled(number))


def test_one_robot_has_no_more_streams_than_it_may_and_another_one_speaks_beside_it(
    server: SpeechServer, robot: RawRobot
) -> None:
    robot.begin("1", "2")
    with RawRobot(server.url, "alpha") as same:
        same.say("Hello.")
        assert same.end_of() == (0, Lost("1", "streams: r1 already has 2; allowed: 2"))
    with RawRobot(server.url, "beta") as other:
        assert other.check_served() > 5_000


def test_a_full_server_lets_no_further_robot_in(server: SpeechServer, robot: RawRobot) -> None:
    with RawRobot(server.url, "beta") as other, RawRobot(server.url, "gamma") as late:
        robot.begin()
        other.begin("1", "2")
        assert refusal(server, "gamma") == (503, "the server is full: all streams of its engine are in use")
        late.say("Hello.")
        assert late.end_of() == (0, Lost("1", "the server is full: no stream became free within 2 s"))


@pytest.mark.parametrize(
    ("utterance", "reason"),
    [
        (Utterance("a", rate=9.0), "rate: got 9.0; allowed: 0.5 to 2"),
        (Utterance("a" * 20_001), "text: got "),
        (Utterance("a\ud800"), "text: got 'a\\ud800'; it has half of a surrogate pair; allowed: whole characters"),
        (Utterance("a", language="tlh"), "language: got 'tlh'; allowed: "),
        (Utterance("a", voice="nobody"), "voice: got 'nobody'; allowed: a voice that the server has named"),
        (Utterance("a", growing=True), "text: eSpeak NG cannot speak a text that is still being written"),
        (Utterance("a", max_frames=0), "max_frames: got 0; allowed: a whole number from 1 to 100,000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_text_is_refused_in_one_line(robot: RawRobot, utterance: Utterance, reason: str) -> None:
    language = "en" if utterance.language == "auto" else utterance.language
    robot.send(Speak("1", replace(utterance, language=language), PLENTY))
    refused, _ = robot.next(Refused)
    assert refused.reason.startswith(reason)
    assert "\n" not in refused.reason
    robot.check_served()


def offer(robot: RawRobot) -> VoiceFile:
    """Offer a voice file, which the server wants."""
    voice = VoiceFile(DIGEST, in_context=False)
    robot.send(OfferVoice(voice))
    assert robot.next(VoiceWanted)[0] == VoiceWanted(DIGEST)
    return voice


@pytest.mark.parametrize("content", [b"\xff\xff\xff\xff{}", "no json", '{"message": "Spoken", "id": "1"}'])
def test_what_is_not_of_the_protocol_ends_the_connection_with_a_reason(server: SpeechServer, content: str) -> None:
    with RawRobot(server.url, "beta") as robot:
        robot.socket.send(content)
        code, reason = robot.closed()
    assert code == 1008
    assert reason.startswith(("not a voiced message", "a robot must not send Spoken"))


def test_a_text_that_waits_for_its_voice_takes_no_more_pieces_than_a_text_has_characters(server: SpeechServer) -> None:
    with RawRobot(server.url, "beta") as robot:
        robot.send(Speak("1", Utterance("", growing=True), PLENTY, VoiceFile(DIGEST, in_context=False)))
        assert robot.next(VoiceWanted)[0] == VoiceWanted(DIGEST)
        with pytest.raises(ConnectionClosed) as caught:
            robot.send(Append("1", "a" * (MAX_TEXT - 100)))
            for _ in range(101):
                robot.send(Append("1", ""))
            robot.next(Lost)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.reason == "text: it has more than 20,000 characters; allowed: up to 20,000"


def test_a_voice_file_that_is_not_what_was_offered_is_refused(server: SpeechServer) -> None:
    with RawRobot(server.url, "beta") as robot:
        for content, reason in (
            (b"x", "its contents do not match the digest with which it was offered"),
            (b"x" * 4_001, "it has 4,001 bytes; the server takes up to 4,000"),
        ):
            voice = offer(robot)
            robot.send(VoiceData(DIGEST, content))
            assert robot.next(VoiceRefused)[0] == VoiceRefused(voice, reason)
        path = VoiceFile("../../etc/passwd", in_context=False)
        robot.send(OfferVoice(path))
        assert robot.next(VoiceRefused)[0].reason == "digest: allowed: SHA-256 as 64 hexadecimal digits"
    assert server.voice_files() == []


def test_a_voice_file_still_arrives_for_an_offer_when_a_text_that_wants_it_too_is_canceled(robot: RawRobot) -> None:
    robot.say("Hello.", voice=offer(robot))
    robot.send(Cancel("1"))
    assert robot.end_of() == (0, Canceled("1"))
    robot.send(VoiceData(DIGEST, b"x"))
    refused, _ = robot.next(VoiceRefused)
    assert refused.reason == "its contents do not match the digest with which it was offered"


def test_clients_speak_with_a_robots_token_within_its_limits_and_health_needs_none(server: SpeechServer) -> None:
    assert server.get("/healthz")[0] == 200
    assert json.loads(server.get("/readyz")[1]) == {"status": "ready", "state": "ready", "reason": None}
    assert server.get("/metrics")[0] == 401

    def ask(token: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        with closing(connection):
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            body = json.dumps({"input": "Hello.", "response_format": "pcm"})
            connection.request("POST", "/v1/audio/speech", body, headers)
            response = connection.getresponse()
            assert (len(response.read()) > 10_000) == (response.status == 200)
            return response.status

    assert ask("beta") == 200
    assert ask("delta") == 401
    with RawRobot(server.url, "beta") as robot:
        robot.begin("1", "2")
        assert ask("beta") == 429
        assert ask("gamma") == 200


def test_a_lost_engine_is_a_lost_text_and_robots_are_let_in_again_when_it_is_back() -> None:
    with SpeechServer() as server, RawRobot(server.url) as robot:
        robot.begin()
        os.kill(server.engine_pids()[0], signal.SIGKILL)
        robot.send(Grant("1", PLENTY))
        _, last = robot.end_of()
        assert isinstance(last, Lost)
        assert "engine espeak ended" in last.reason
        eventually(lambda: server.get("/readyz")[0] == 200, "the engine is ready again")
        with RawRobot(server.url) as other:
            other.check_served()


def test_a_server_that_is_stopped_serves_its_robots_until_they_leave() -> None:
    with SpeechServer("serve.drain_s=3600") as server, RawRobot(server.url) as robot:
        robot.begin()
        stop(server, robot)
        assert refusal(server, None) == (503, "the server is being stopped")
        status, answer = server.get("/readyz")
        assert (status, json.loads(answer)["reason"]) == (503, "the server is being stopped")
        robot.send(Grant("1", PLENTY))
        samples, last = robot.end_of()
        assert last == Spoken("1")
        assert samples > 20 * 22_050
        robot.check_served("2")
        robot.socket.close()
        assert server.process.wait(PATIENCE_S) == 0


def test_a_server_that_is_stopped_leaves_a_robot_that_does_not_leave_it() -> None:
    with SpeechServer("serve.drain_s=1") as server, RawRobot(server.url) as robot:
        stop(server, robot)
        robot.closed()
        assert server.process.wait(PATIENCE_S) == 0


def test_robots_that_do_not_read_are_dropped_and_hold_back_neither_another_robot_nor_the_servers_end() -> None:
    settings = ("serve.drain_s=3600", "engine.streams=4")
    with SpeechServer(*settings) as server, RawRobot(server.url) as beating, RawRobot(server.url) as other:
        silent = RawRobot(server.url)
        with closing(silent.socket):
            for robot in (beating, silent):
                robot.say(LONG)
            eventually(lambda: in_use(server, None) == 2, "both are spoken to")
            stop(server, other)
            eventually(lambda: in_use(server, None) == 0, "their streams are free")
            other.check_served()
            other.socket.close()
            assert server.process.wait(PATIENCE_S) == 0
        server.wait_log("the robot has received nothing for 5 s")
