"""Reading JSON-RPC as a stranger would: without the package's parser, and keeping how a number is spelled."""

from __future__ import annotations

import json
from typing import Any


class Number(str):
    """A JSON number as it is spelled; never equal to the string with the same letters."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and str.__eq__(self, other)

    def __hash__(self) -> int:
        return hash(("number", str(self)))


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is not JSON")


_decoder = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_no_constant)


def read(data: bytes) -> Any:
    """A JSON text, strictly: UTF-8 only, no NaN or Infinity. Numbers come as `Number`.

    Raises ValueError for anything else.
    """
    return _decoder.decode(data.decode("utf-8"))


# Payloads that a parse and a dump would spoil.
FRAGILE = (
    b"1180591620717411303424",
    b"1.10",
    b"1e400",
    b"-0.0",
    b"1E+2",
    b"1234567890123456789",
    b"-9223372036854775809",
    b"123456789012345678901234567890.123456789012345678901234567890",
    b'{"twice":1,"twice":2}',
    '"a\u2028b\u2029c\u0085d"'.encode(),
    rb'"\u0000\u2028\/\b"',
    rb'"\ud83c\udf89 \u00e9"',
    '"读🎉\x7f"'.encode(),
    b'{ "spaced" : [ 1 , 2 ] }',
    b'{"":{"":[[],{}]}}',
)
