"""What an expression says, once it is read."""

from __future__ import annotations

from dataclasses import dataclass

from servers.arithmetic.numbers import Number


@dataclass(frozen=True, slots=True)
class Literal:
    value: Number


@dataclass(frozen=True, slots=True)
class Constant:
    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Percent:
    operand: Node


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with its unit: degrees, radians or a currency."""

    operand: Node
    unit: str


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple[Node, ...]


Node = Literal | Constant | Negative | Binary | Percent | Measure | Call
