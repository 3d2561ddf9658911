"""MCP server with one tool, `calculate`: arithmetic that can neither run code nor hang."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run as a script: its own folder must not shadow other modules
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import math
from decimal import Context
from fractions import Fraction
from typing import Annotated, Literal, NotRequired

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ToolAnnotations
from pydantic import Field
from typing_extensions import TypedDict

from servers.arithmetic.calculate import Result
from servers.arithmetic.calculate import calculate as calculated
from servers.arithmetic.numbers import CalculationError, Number, to_float
from servers.arithmetic.text import quoted
from servers.serving import answer, serve

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest whole number every JSON reader keeps exact (RFC 8259 §6)."""


class Calculation(TypedDict):
    """The answer of `calculate`."""

    status: Literal["success"]
    value: Annotated[int | float | str, Field(description="the result; text when no JSON number can hold it")]
    text: NotRequired[Annotated[str, Field(description="the result as text, when it is a very large whole number")]]
    unit: NotRequired[Annotated[str, Field(description="the unit of the result, such as degrees or $")]]
    note: NotRequired[Annotated[str, Field(description="the rule it was read by, where there are several: say it")]]


def calculation(result: Result) -> Calculation:
    """Return the answer of `calculate`. Raises CalculationError when the value is not finite."""
    shown = _rounded(result.value)
    if result.unit:
        shown["unit"] = result.unit
    if result.notes:
        shown["note"] = " ".join(result.notes)
    return shown


def _rounded(value: Number) -> Calculation:
    """Return `value` with at most 15 digits where it is not whole. Raises CalculationError when not finite."""
    if isinstance(value, Fraction):
        value = to_float(value)
    if isinstance(value, float):
        if math.isnan(value):
            raise CalculationError("The result is undefined: the expression subtracts or divides infinities.")
        rounded = float(f"{value:.15g}")
        if math.isinf(rounded):  # the largest floats are rounded beyond the range, too
            raise CalculationError("The result is too large: it exceeds 1.79e308. Use smaller numbers.")
        whole = rounded.is_integer() and abs(rounded) <= MAX_SAFE_INTEGER
        return {"status": "success", "value": int(rounded) if whole else rounded}
    if abs(value) <= MAX_SAFE_INTEGER:
        return {"status": "success", "value": value}
    if abs(value) < 10**308:
        return {"status": "success", "value": value, "text": str(value)}
    text = f"{Context(prec=15).create_decimal(value).normalize():e}"
    return {"status": "success", "value": text, "text": text}


def register(server: MCPServer) -> None:
    """Add `calculate` to `server`."""

    @server.tool(title="Calculator", annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    def calculate(
        expression: Annotated[
            str,
            Field(description="arithmetic, such as 1004 * 328 or sqrt(2) * (3 + 4)", coerce_numbers_to_str=True),
        ],
    ) -> Annotated[CallToolResult, Calculation]:
        """Calculate one arithmetic expression exactly. Use this for every sum instead of working it out yourself.

        Understands + - * / // % ** and ^ (power), brackets, 15% and 10% of 80, and the functions and constants of
        Python's math and random modules: sqrt(2), log10(50), sin(pi/4), factorial(10), max(1, 200), randint(1, 6).
        Also takes English, Chinese and Japanese as spoken: twenty percent of 80, 三分之一加二, 5に7を足す.
        Angles are in radians, or in degrees as sin(30°). 200 + 15% is 230. Say the note of an answer, too.
        """
        try:
            return answer(calculation(calculated(expression)))
        except CalculationError as error:
            raise ToolError(f"{quoted(expression)}: {error}") from None


def main() -> None:
    """Serve `calculate` over stdio."""
    server = MCPServer("math-evaluator", title="Calculator", log_level="WARNING")
    register(server)
    serve(server)


if __name__ == "__main__":
    main()
