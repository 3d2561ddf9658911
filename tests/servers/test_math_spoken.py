"""`calculate` as it is spoken to: no wrong answer in silence, and a refusal that quotes what was sent."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.arithmetic.calculate import calculate
from servers.arithmetic.numbers import CalculationError
from servers.math_evaluator import calculation
from tests.servers.stdio_client import StdioClient

SPOKEN: dict[str, list[tuple[str, float | str]]] = json.loads(
    Path(__file__).with_name("spoken.json").read_text(encoding="utf-8")
)
"""Per language what people say, and the right value or "refuse"."""


@pytest.fixture(scope="module")
def calculator() -> Iterator[StdioClient]:
    with StdioClient("-m", "servers.math_evaluator") as client:
        yield client


def _said(expression: str) -> float | str:
    try:
        value = calculation(calculate(expression))["value"]
    except CalculationError:
        return "refuse"
    return float(value)


def _is_right(answer: float | str, right: float | str) -> bool:
    if isinstance(answer, str) or isinstance(right, str):
        return answer == right
    return math.isclose(answer, right, rel_tol=1e-12)


@pytest.mark.parametrize("language", SPOKEN)
def test_nothing_spoken_is_answered_wrongly_and_four_in_five_are_understood(language: str) -> None:
    answers = [(said, right, _said(said)) for said, right in SPOKEN[language]]
    wrong = [answer for answer in answers if answer[2] != "refuse" and not _is_right(answer[2], answer[1])]
    answerable = [answer for answer in answers if answer[1] != "refuse"]
    understood = [answer for answer in answerable if answer[2] != "refuse"]

    assert wrong == []
    assert len(understood) >= 0.8 * len(answerable)


RIGHT = [
    ("2千×3", 6000),
    ("1.5千×2", 3000),
    ("2百万", 2000000),
    ("三万亿除以二", 1.5e12),
    ("1億2,000万 ÷ 3", 40000000),
    ("三百分之一", 0.00333333333333333),
    ("mean(1,000, 2,000)", 1500),
    ("hypot(3,000, 4,000)", 5000),
    ("hypot(3,000,4,000)", 5000),
    ("sqrt(1,024)", 32),
    ("90° - 30°", 60),
    ("90°/30°", 3),
    ("(10)2.5", 25),
    ("2pi", 6.28318530717959),
    ("007+1", 8),
    ("4x3", 12),
    ("50% x 80", 40),
    ("10 mod 3", 1),
    ("sin(pi/2)", 1),
    ("sin(180°)", 0),
    ("cos 90 degrees", 0),
    ("ln(e)", 1),
    ("0.25 of 80", 20),
    ("2/3 of 90", 60),
    ("half of 20 percent of 80", 8),
    ("20% off 50%", 0.4),
    ("1½", 1.5),
    ("100%-20%", 0.8),
    ("5 - -3", 8),
    ("$10/$5", 2),
    ("average of 1,200 and 1,300", 1250),
    ("(the sum of 5 and 7) times 2", 24),
    ("10和20的和乘以2", 60),
    ("100元打九五折", 95),
    ("-5的绝对值", 5),
    ("マイナス3の絶対値", 3),
    ("10的负2次方", 0.01),
    ("万分之一", 0.0001),
    ("2 point 5 million", 2500000),
    ("twelve and a half percent of 80", 10),
    ("the cube of 4", 64),
    ("1000円から20%引く", 800),
    ("50から20引いて10足す", 40),
    ("4的平方加3的平方", 25),
    ("(" * 50 + "1" + ")" * 50, 1),
]


@pytest.mark.parametrize(("expression", "value"), RIGHT, ids=lambda text: str(text)[:30])
def test_answers_rightly(calculator: StdioClient, expression: str, value: float) -> None:
    assert calculator.call("calculate", expression=expression).data["value"] == value


NOTES = [
    ("round(2.5)", 2, "even neighbour"),
    ("log(100)", 4.60517018598809, "natural logarithm"),
    ("log(1,024)", 6.93147180559945, "natural logarithm"),
    ("sin(30)", -0.988031624092862, "radians; for degrees write sin(30°)"),
    ("atan(1)", 0.785398163397448, "in radians"),
    ("max(1,200)", 200, "The comma in brackets was read as parting two numbers"),
]


@pytest.mark.parametrize(("expression", "value", "note"), NOTES)
def test_a_rule_that_others_choose_otherwise_is_stated(
    calculator: StdioClient, expression: str, value: float, note: str
) -> None:
    data = calculator.call("calculate", expression=expression).data

    assert data["value"] == value
    assert note in data["note"]


def test_a_plain_sum_carries_neither_note_nor_unit(calculator: StdioClient) -> None:
    assert calculator.call("calculate", expression="2 + 3").data == {"status": "success", "value": 5}


@pytest.mark.parametrize(
    ("expression", "value", "unit"),
    [
        ("90° - 30°", 60, "degrees"),
        ("$1,200.50 * 3", 3601.5, "$"),
        ("¥1000 × 3", 3000, "¥"),
        ("100元加50元", 150, "元"),
        ("radians(180°)", 3.14159265358979, "radians"),
    ],
)
def test_a_unit_is_kept(calculator: StdioClient, expression: str, value: float, unit: str) -> None:
    assert calculator.call("calculate", expression=expression).data == {
        "status": "success",
        "value": value,
        "unit": unit,
    }


TWO_READINGS = [
    ("三千五乘以二", "3500 (Chinese)", "3005 (Japanese)"),
    ("1万5足す1", "15000 (Chinese)", "10005 (Japanese)"),
    ("log(1,234)", "the number 1234", "two arguments"),
    ("round(1,234)", "the number 1234", "two arguments"),
    ("max(1,234, 5)", "the number 1234", "two arguments"),
    ("mean(1,200, 2,500)", "the number 1200", "two arguments"),
    ("sum(100,000,200,000)", "one number", "several"),
    ("20 percent (50 + 30)", "20% of (50 + 30)", "20 mod (50 + 30)"),
    ("20% 50", "a percentage", "a remainder"),
    ("7%-3", "a percentage", "a remainder"),
    ("6/2(1+2)", "a / (b * c)", "(a / b) * c"),
    ("1/2pi", "a / (b * c)", "(a / b) * c"),
    ("12除3", "a / b", "b / a"),
    ("sum of 5 and 7 times 2", "after the whole list", "after its last number only"),
    ("multiply 6 by 7 plus 2", "after the whole list", "after its last number only"),
    ("average of one hundred and five", "one number", "several"),
    ("average of 100,200 and 300", "one number", "several"),
    ("negative five squared", "-(5^2)", "(-5)^2"),
    ("100加50的一半", "of the last number", "of everything before it"),
    ("3足す6の平方根", "of the last number", "of everything before it"),
    ("5的平方加12的平方的平方根", "of the last number", "of everything before it"),
    ("-16的平方根", "-sqrt(a)", "sqrt(-a)"),
    ("sin of pi over 2", "sin(a) / b", "sin(a / b)"),
    ("square root of 16 times 4", "sqrt(a) * b", "sqrt(a * b)"),
    ("sqrt 16^2", "sqrt(a) ^ b", "sqrt(a ^ b)"),
    ("what is 3 plus 4!", "a factorial", "an exclamation"),
    ("2m * 3", "a unit", "millions"),
]


@pytest.mark.parametrize(("expression", "first", "second"), TWO_READINGS)
def test_what_has_two_readings_is_refused_with_both(
    calculator: StdioClient, expression: str, first: str, second: str
) -> None:
    refusal = calculator.fail("calculate", expression=expression)

    assert first in refusal
    assert second in refusal


REFUSED = [
    ("2024-12-25 - 2024-12-01", "dates are not for this tool"),
    ("12/25/2024", "looks like a date"),
    ("10:30 + 5", "':' is not understood"),
    ("20 dollars plus 5 euros", "$ and € do not fit together"),
    ("90° + 30", "the other has no unit"),
    ("tan(90°)", "undefined for 90 degrees"),
    ("五十三百", "is not one number"),
    ("1万2万", "has two readings"),
    ("3 and 4", "the sum of 3 and 4"),
    ("3 of 5", "'3 of' is not clear"),
    ("100 / 20% of 50", "is not clear"),
    ("15 plus at 27", "'at' is not understood"),
    ("two hundred five hundred", "cannot be read near 'two hundred five hundred'"),
    ("5kg + 2", "'kg' is not understood"),
    ("1.234,56", "write decimals with a point"),
    ("３ ＋ ，４", "'＋ ，'"),
]


@pytest.mark.parametrize(("expression", "says"), REFUSED)
def test_a_refusal_names_the_place_in_what_was_sent(calculator: StdioClient, expression: str, says: str) -> None:
    assert says in calculator.fail("calculate", expression=expression)


EVERY_REFUSAL = [
    *(said for sentences in SPOKEN.values() for said, right in sentences if right == "refuse"),
    *(expression for expression, *_ in [*TWO_READINGS, *REFUSED]),
    *("1e400", "1/0", "sqrt(-1)", "factorial(2.5)", "9**9**9", "at * is * 15", "it's 5", "\x1b[31m5"),
]


@pytest.mark.parametrize("expression", EVERY_REFUSAL)
def test_every_refusal_quotes_what_was_sent(calculator: StdioClient, expression: str) -> None:
    assert repr(expression) in calculator.fail("calculate", expression=expression)


SLOW = [
    "等于多少" * 490 + "x",
    "一" + "1" * 1900 + "x",
    "1,111," * 330 + "x",
    "一点" * 900,
    "twenty " * 280,
    "one hundred and " * 120,
    "的平方根" * 490,
    "sin " * 490 + "1",
    "は" * 1900 + "x",
    "9" * 1900 + "万",
    "9千" * 900,
    "9億" + "9" * 1900 + "億",
    "1+(" * 600,
    "0." + "9" * 1900 + "亿亿亿",
    " " * 1990 + "1 +",
]


@pytest.mark.parametrize("expression", SLOW, ids=lambda text: text[:12])
def test_nothing_that_is_sent_takes_long_to_refuse(calculator: StdioClient, expression: str) -> None:
    started = time.monotonic()
    calculator.fail("calculate", expression=expression)

    assert time.monotonic() - started < 1
