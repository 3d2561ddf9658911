"""The names an expression may use: the numeric part of Python's `math` and `random`, made safe to call.

Left out are functions that answer with something else than a number (`frexp`, `isclose`, `shuffle`), that
change state for everybody (`seed`), or that take text. Functions over a list take their numbers as
arguments too: `sum(1, 2)` and `sum([1, 2])` are the same.
"""

from __future__ import annotations

import difflib
import math
import operator
import random
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from servers.arithmetic.numbers import MAX_BITS, CalculationError, Number, check_size
from servers.arithmetic.operations import add, divide, multiply, power

CONSTANTS: dict[str, Number] = {
    "pi": math.pi,
    "e": math.e,
    "tau": math.tau,
    "inf": math.inf,
    "nan": math.nan,
}

TAKES_LIST = frozenset({"sum", "fsum", "prod", "min", "max", "choice", "mean"})
"""Functions whose numbers may also come as one list: `sum([1, 2])`."""

MAX_ROUND_DIGITS = 1_000
MAX_VARIATE = 1e6
"""The rejection loops behind random's distributions may never end for larger parameters."""

_PLAIN = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh degrees erf erfc exp exp2 expm1 fabs floor "
    "fmod gamma gcd hypot isqrt ldexp lgamma log log10 log1p log2 nextafter radians remainder sin sinh sqrt tan tanh "
    "trunc ulp"
)
_VARIATES = (
    "betavariate expovariate gammavariate gauss lognormvariate normalvariate paretovariate triangular uniform "
    "vonmisesvariate weibullvariate"
)


def nearest_name(name: str, table: Iterable[str]) -> str:
    """Return `" (did you mean …?)"`, or nothing when no known name is close."""
    near = difflib.get_close_matches(name.lower(), list(table), n=1) if len(name) < 40 else []
    return f" (did you mean {near[0]}?)" if near else ""


def _refuse(name: str) -> CalculationError:
    return CalculationError(f"The result of {name} would be too large to calculate: use smaller numbers.")


def _integers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` refusing, as a TypeError, what is not whole: not all of the standard library does."""
    return lambda *numbers: function(*map(operator.index, numbers))


def _factorial(number: int) -> int:
    if number > 1 and math.lgamma(number + 1) / math.log(2) > MAX_BITS:
        raise _refuse("factorial")
    return math.factorial(number)


def _perm(count: int, chosen: int | None = None) -> int:
    if chosen is None:
        return _factorial(count)
    if chosen <= count and chosen * count.bit_length() > MAX_BITS:
        raise _refuse("perm")
    return math.perm(count, chosen)


def _comb(count: int, chosen: int) -> int:
    if min(chosen, count - chosen) * count.bit_length() > MAX_BITS:
        raise _refuse("comb")
    return math.comb(count, chosen)


def _lcm(*numbers: int) -> int:
    return reduce(lambda left, right: check_size(math.lcm(left, right)), numbers, 1)


def _prod(*numbers: Number) -> Number:
    one: Number = 1
    return reduce(multiply, numbers, one)


def _sum(*numbers: Number) -> Number:
    nothing: Number = 0
    return reduce(add, numbers, nothing)


def _mean(*numbers: Number) -> Number:
    return divide(_sum(*numbers), len(numbers))


def _choice(*numbers: Number) -> Number:
    return random.choice(numbers)


def _round(number: Number, digits: int | None = None) -> Number:
    if digits is not None and abs(digits) > MAX_ROUND_DIGITS:
        raise CalculationError(f"round takes at most {MAX_ROUND_DIGITS} digits.")
    return round(number, digits)


def _getrandbits(bits: int) -> int:
    if bits > MAX_BITS:
        raise _refuse("getrandbits")
    return random.getrandbits(bits)


def _variate(name: str) -> Callable[..., float]:
    function: Callable[..., float] = getattr(random, name)

    def draw(*parameters: Number) -> float:
        for parameter in parameters:
            if not -MAX_VARIATE <= parameter <= MAX_VARIATE:
                raise CalculationError(f"{name} takes parameters between -1,000,000 and 1,000,000.")
        return function(*map(float, parameters))

    return draw


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(math, name) for name in _PLAIN.split()},
    **{name: _variate(name) for name in _VARIATES.split()},
    "abs": abs,
    "average": _mean,
    "ceiling": math.ceil,
    "choice": _choice,
    "comb": _integers(_comb),
    "factorial": _integers(_factorial),
    "fsum": _sum,
    "getrandbits": _integers(_getrandbits),
    "int": math.trunc,
    "lcm": _integers(_lcm),
    "ln": math.log,
    "max": max,
    "mean": _mean,
    "min": min,
    "perm": _integers(_perm),
    "pow": power,
    "prod": _prod,
    "randint": _integers(random.randint),
    "random": random.random,
    "randrange": _integers(random.randrange),
    "round": _round,
    "sum": _sum,
}
