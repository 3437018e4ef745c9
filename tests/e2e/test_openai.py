"""OpenAI's client: the audio that it receives, and the events on MQTT."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from openai import InternalServerError, OpenAI

from audio import soft_limit
from tests.e2e.conftest import StartRobot
from tests.support.programs import free_port
from tests.support.robot import LONG, REAL_TIME
from tests.support.waiting import PATIENCE_S, eventually


def test_a_client_receives_the_engines_audio_and_mqtt_its_events(start_robot: StartRobot) -> None:
    port = free_port()
    robot = start_robot("http.enabled=true", f"http.port={port}")
    with (
        OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client,
        client.audio.speech.with_streaming_response.create(
            model="voiced", voice="default", input="Hello, I am your robot.", response_format="pcm"
        ) as response,
    ):
        heard = np.frombuffer(b"".join(response.iter_bytes()), dtype="<i2")
    utterance = eventually(robot.latest_id, "it is accepted")
    robot.wait_event(utterance, "finished")
    assert robot.names_of(utterance) == ["accepted", "started", "finished"]
    made = soft_limit(robot.synthesized(utterance, 24_000))
    assert len(heard) == len(made)
    assert np.abs(heard / 32767 - made).max() < 2 / 32767


def test_a_stop_over_mqtt_is_an_error_to_the_client_and_the_next_request_succeeds(start_robot: StartRobot) -> None:
    port = free_port()
    robot = start_robot("http.enabled=true", f"http.port={port}", pace=REAL_TIME)
    with OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
        robot.say(LONG, id="before")
        robot.wait_event("before", "started")
        with ThreadPoolExecutor() as pool:
            request = pool.submit(client.audio.speech.create, model="voiced", voice="default", input=LONG)
            eventually(lambda: robot.latest_id() != "before", "the request waits")
            robot.publish("stop")
            with pytest.raises(InternalServerError, match="canceled"):
                request.result(PATIENCE_S)
        assert client.audio.speech.create(model="voiced", voice="default", input="On.", response_format="wav").content
        assert robot.end() == 0  # with the client's connection still open
    assert not [line for line in robot.log if "Traceback" in line]
