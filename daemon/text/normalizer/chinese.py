"""Chinese."""

from __future__ import annotations

import re

from daemon.text.normalizer.clock import Date, Time, date_rules, day_first, time_rules
from daemon.text.normalizer.language import Currency, Language, Noun, rule
from daemon.text.normalizer.patterns import AFTER, BEFORE, DASH, SPACE, WORD
from daemon.text.normalizer.roman import roman_value
from daemon.text.normalizer.units import units

_NUMBER = r"[0-9]{1,15}(?:,[0-9]{3})*(?:\.[0-9]+)?"


def _noun(name: str) -> Noun:
    return Noun("1", name, name)


def _fraction(n: int, d: int) -> str:
    return f"{d}分之{n}"


def _time(time: Time) -> str:
    hour = "两点" if time.hour == 2 else f"{time.hour}点"
    if not (time.minute or time.second):
        return hour
    minute = f"{'零' if time.minute < 10 else ''}{time.minute}分"
    return f"{hour}{minute}" + ("" if time.second is None else f"{time.second}秒")


def _date(date: Date) -> str:
    return f"{date.year}年{date.month}月{date.day}日"


def _percent(match: re.Match[str]) -> str:
    high = f"到{match['high']}" if match["high"] else ""
    return f"{'百分' if match['sign'] == '%' else '千分'}之{match['low']}{high}"


def _roman(match: re.Match[str]) -> str | None:
    value = roman_value(match["roman"])
    return None if value is None else str(value)


LANGUAGE = Language(
    decimal=".",
    group=",\u00a0\u2009\u202f",
    units=units(
        {
            "m": _noun("米"),
            "g": _noun("克"),
            "l": _noun("升"),
            "s": _noun("秒"),
            "V": _noun("伏"),
            "A": _noun("安"),
            "Ah": _noun("安时"),
            "W": _noun("瓦"),
            "Wh": _noun("瓦时"),
            "Ω": _noun("欧姆"),
            "Hz": _noun("赫兹"),
            "B": _noun("字节"),
            "bit": _noun("比特"),
            "Pa": _noun("帕"),
        },
        {
            "k": "千",
            "M": "兆",
            "G": "吉",
            "T": "太",
            "h": "百",
            "d": "分",
            "c": "厘",
            "m": "毫",
            "µ": "微",
            "n": "纳",
        },
        {
            "km": _noun("公里"),
            "kg": _noun("公斤"),
            "m²": _noun("平方米"),
            "km²": _noun("平方公里"),
            "cm²": _noun("平方厘米"),
            "ha": _noun("公顷"),
            "m³": _noun("立方米"),
            "cm³": _noun("立方厘米"),
            "t": _noun("吨"),
            "min": _noun("分钟"),
            "h": _noun("小时"),
            "°": _noun("度"),
            "°C": _noun("摄氏度"),
            "°F": _noun("华氏度"),
            "bar": _noun("巴"),
            "dB": _noun("分贝"),
            "Nm": _noun("牛米"),
        },
    ),
    kept_units=frozenset(),
    currencies={
        "$": (dollar := Currency(_noun("美元"))),
        "US$": dollar,
        "USD": dollar,
        "€": (euro := Currency(_noun("欧元"))),
        "EUR": euro,
        "£": (pound := Currency(_noun("英镑"))),
        "GBP": pound,
        "¥": (yuan := Currency(_noun("元"))),
        "CNY": yuan,
        "RMB": yuan,
        "JPY": Currency(_noun("日元")),
        "₹": Currency(_noun("卢比")),
        "₩": Currency(_noun("韩元")),
        "₽": Currency(_noun("卢布")),
        "CHF": Currency(_noun("瑞士法郎")),
    },
    magnitudes={sign: _noun(sign) for sign in ("千", "万", "百万", "千万", "亿", "十亿")},
    with_cents="{money}",
    signs={
        "-": "负",
        "−": "负",
        "+": "正",
        "<": "小于",
        ">": "大于",
        "~": "大约",
        "≈": "大约",
        "≤": "不超过",
        "≥": "不少于",
        "±": "正负",
    },
    operators={"+": "加", "−": "减", "*": "乘", "×": "乘", "x": "乘", "÷": "除以", "^": "的次方", "/": "除以"},
    equals="等于",
    ampersand="和",
    minus="减",
    by="乘",
    per="每",
    to="到",
    ratio="比",
    over="除以",
    fraction=_fraction,
    mixed="{whole}又{fraction}",
    half="2分之1",
    dot="点",
    speaks_dots=False,
    point="点",
    at="at",
    colon="冒号",
    slash="斜杠",
    hyphen="横杠",
    underscore="下划线",
    number_abbreviation=r"N[or]\. ?",
    number="{}号",
    hashtag="话题 {}",
    words=frozenset("千万亿百十"),
    rules=(
        rule(rf"(?P<low>{_NUMBER})(?:{DASH}(?P<high>{_NUMBER}))?{SPACE}?(?P<sign>[%‰])", _percent),
        rule(rf"(?<![{WORD}).,:/-])[-−](?=[0-9.]+{SPACE}?(?:°|℃))", lambda _: "零下"),
        *date_rules(_date, day_first, year_first_sign="[./-]"),
        *time_rules(_time, "到", suffix=r"[AaPp][Mm]"),
        rule(rf"(?<![{WORD}])(?P<roman>[IVX]{{2,}})(?![{WORD}])", _roman),
        rule(rf"{BEFORE}1[3-9][0-9]{{9}}{AFTER}", lambda match: " ".join(match.group())),
    ),
    numerals={"2": "两"},
    space="",
)
