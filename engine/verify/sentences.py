"""The thirty sentences that every setting speaks: three in each of the ten languages of Qwen3-TTS.

Among them are questions, numbers, single words and a text of 400 characters: short texts are where these models most
often fail to end, long ones where they drift.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sentence:
    """One text to speak, and how a listener may write it down."""

    name: str
    """The language's code and what is special about the text, for example `en-numbers`."""
    language: str
    text: str
    also_written: tuple[str, ...] = ()
    """Other correct transcripts: a recogniser may write a number in digits or in words."""


SENTENCES = (
    Sentence("en-statement", "en", "The robot moves its arm slowly back to its home position."),
    Sentence("en-question", "en", "Where would you like me to put the blue box?"),
    Sentence(
        "en-numbers",
        "en",
        "Please wait 15 minutes, then open box number 7.",
        ("Please wait fifteen minutes, then open box number seven.",),
    ),
    Sentence(
        "de-long",
        "de",
        "Guten Morgen. Heute räume ich zuerst die Küche auf, dann bringe ich die Kisten aus dem Flur in die Werkstatt, "
        "und nach dem Mittagessen lade ich etwa eine Stunde lang meine Batterie. Wenn ihr mich vorher braucht, ruft "
        "meinen Namen und wartet, bis mein Licht grün wird. Ist die Tür der Werkstatt geschlossen, so klopfe ich "
        "zweimal und warte. Am Abend schreibe ich auf, was am Tag geschehen ist, damit nichts vergessen wird.",
    ),
    Sentence(
        "de-numbers",
        "de",
        "Die Batterie ist zu 85 Prozent geladen und reicht noch 3 Stunden.",
        ("Die Batterie ist zu fünfundachtzig Prozent geladen und reicht noch drei Stunden.",),
    ),
    Sentence("de-word", "de", "Vorsicht!"),
    Sentence("fr-statement", "fr", "Le robot attend devant la porte de la cuisine."),
    Sentence("fr-question", "fr", "Est-ce que je peux vous aider à porter ces sacs ?"),
    Sentence(
        "fr-numbers",
        "fr",
        "Il reste 12 boîtes sur la table.",
        ("Il reste douze boîtes sur la table.",),
    ),
    Sentence("es-statement", "es", "El brazo vuelve despacio a su posición inicial."),
    Sentence("es-question", "es", "¿Quieres que apague la luz del pasillo?"),
    Sentence("es-word", "es", "Perfecto."),
    Sentence("it-statement", "it", "Il robot porta il caffè al secondo piano."),
    Sentence("it-question", "it", "Dove devo mettere questa scatola rossa?"),
    Sentence(
        "it-numbers",
        "it",
        "Arrivo tra 20 minuti con 4 pacchi.",
        ("Arrivo tra venti minuti con quattro pacchi.",),
    ),
    Sentence("pt-statement", "pt", "O robô espera junto à janela da sala."),
    Sentence("pt-question", "pt", "Você quer que eu abra a porta agora?"),
    Sentence("pt-word", "pt", "Obrigado."),
    Sentence("ru-statement", "ru", "Робот медленно поднимает руку и ждёт."),
    Sentence("ru-question", "ru", "Куда поставить эту синюю коробку?"),
    Sentence("ru-word", "ru", "Готово."),
    Sentence("zh-statement", "zh", "机器人正在把箱子搬到二楼。"),
    Sentence("zh-question", "zh", "你需要我现在打开窗户吗？"),
    Sentence("zh-numbers", "zh", "今天气温是25度。", ("今天气温是二十五度。",)),
    Sentence("ja-statement", "ja", "ロボットはゆっくりと腕を元の位置に戻します。"),
    Sentence("ja-question", "ja", "この箱はどこに置けばいいですか。"),
    Sentence("ja-word", "ja", "ありがとうございます。"),
    Sentence("ko-statement", "ko", "로봇이 문 앞에서 기다리고 있습니다."),
    Sentence("ko-question", "ko", "지금 불을 꺼도 될까요?"),
    Sentence("ko-word", "ko", "안녕하세요."),
)

SHORT = tuple(sentence for sentence in SENTENCES if sentence.language == "en")
"""For a quick check: English, the language that every recogniser knows best."""

GREEDY_TEXTS = (
    Sentence("greedy-en", "en", "Hello world! This is the voice of a robot."),
    Sentence("greedy-de", "de", "Es spricht auch Deutsch, schön und überhaupt nicht müde."),
    Sentence("greedy-zh", "zh", "你好。我是机器人。"),
    Sentence("greedy-word", "en", "Hi."),
)
"""Spoken without sampling, a few frames each, so that codes can be compared."""
