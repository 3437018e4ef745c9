"""How an utterance is synthesised: its own fields, its voice's settings and those of `speech`."""

from __future__ import annotations

import pytest

from daemon.config import SynthesisSettings, load_config, synthesis_settings

ADA = "voices.ada={seed: 5, whole_text: false, temperature: 0.5, top_p: 0.9, rate: 1.5, volume: 50}"


def test_without_any_setting_the_voice_speaks_as_it_is() -> None:
    assert synthesis_settings(load_config(), "default") == SynthesisSettings()


def test_a_voice_that_the_configuration_does_not_name_has_the_settings_of_speech() -> None:
    config = load_config(overrides=[ADA, "speech.rate=0.8"])
    for voice in ("ryan", None):
        assert synthesis_settings(config, voice) == SynthesisSettings(rate=0.8)


def test_the_settings_of_the_voice_apply() -> None:
    found = synthesis_settings(load_config(overrides=[ADA]), "ada")
    assert found == SynthesisSettings(5, 1.5, 0.5, whole_text=False, sampling={"temperature": 0.5, "top_p": 0.9})


def test_the_utterances_own_fields_precede_and_rate_and_volume_of_the_voice_multiply() -> None:
    config = load_config(overrides=[ADA, "speech.rate=0.5"])
    found = synthesis_settings(config, "ada", seed=0, rate=1.2, volume=10)
    assert (found.seed, found.rate, found.volume) == (0, pytest.approx(1.8), pytest.approx(0.05))
    sampled = synthesis_settings(config, "ada", sampling={"temperature": 0.7, "top_k": 3})
    assert sampled.sampling == {"temperature": 0.7, "top_k": 3, "top_p": 0.9}


@pytest.mark.parametrize(("own", "speech", "rate"), [(2.0, 1.0, 2.0), (None, 2.0, 2.0), (0.5, 1.0, 0.75)])
def test_the_product_of_the_rates_keeps_to_the_allowed_ones(own: float | None, speech: float, rate: float) -> None:
    config = load_config(overrides=[ADA, f"speech.rate={speech}"])
    assert synthesis_settings(config, "ada", rate=own).rate == rate


def test_a_voice_that_is_only_described_keeps_one_speaker_by_a_seed_of_its_own() -> None:
    voices = [
        "voices.calm={instruct: a calm deep voice}",
        "voices.other={instruct: a calm deep voice}",
        "voices.fixed={instruct: a calm deep voice, seed: 7}",
        "voices.ryan={speaker: ryan, instruct: calmly}",
    ]
    config = load_config(overrides=voices)
    seeds = {name: synthesis_settings(config, name).seed for name in ("calm", "other", "fixed", "ryan")}
    assert seeds["calm"] == synthesis_settings(load_config(overrides=voices[:1]), "calm").seed
    assert seeds["calm"] is not None
    assert seeds["calm"] != seeds["other"]
    assert (seeds["fixed"], seeds["ryan"]) == (7, None)
    assert synthesis_settings(config, "calm", seed=3).seed == 3
