"""Every way in which one value of a settings file can be wrong, at every key of the models, new ones too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from voice_bridge.config.models import BridgeSettings, EndpointSettings, ServerSettings

GOOD_SERVER = "good"
GOOD_ENDPOINT = "fine"
SPELLINGS = {"type", "transportType", "enabled"}
"""Keys of a server beside the model's."""

# As text, since most of them are what no JSON writer would write.
PLAIN = {
    "null": "null",
    "false": "false",
    "true": "true",
    "zero": "0",
    "a negative number": "-1",
    "a fraction": "0.5",
    "empty text": '""',
    "a word": '"word"',
    "an empty list": "[]",
    "a list of numbers": "[1, 2]",
    "a list of lists": "[[], [[]]]",
    "an empty object": "{}",
    "an object of objects": '{"": {}, "a": {"b": []}}',
}
ODD = {
    "NaN": "NaN",
    "an infinity": "-Infinity",
    "1e999": "1e999",
    "400 digits": "1" * 400,
    "5,000 digits": "-" + "1" * 5000,
    "NUL": '"a\\u0000b"',
    "half a surrogate pair": '"a\\ud800b"',
    "control characters": '"a\\r\\n\\u001b[31m\\u2028b"',
    "a blank": '" "',
    "300 letters": f'"{"n" * 300}"',
    "a folder of 300 letters": f'"/tmp/{"n" * 300}/x"',
    "200,000 letters": f'"{"n" * 200_000}"',
    "a variable that is not set": '"${NOBODY_SETS_THIS}"',
    "a variable without an end": '"${NOBODY_SETS_THIS"',
    "an open bracket": '"http://[::1/mcp"',
    "an open bracket of a WebSocket": '"wss://[::1/mcp"',
    "a port beyond all": '"wss://h:99999999999/"',
    "a host of 300 letters": f'"wss://{"h" * 300}/"',
    "60 levels": "[" * 60 + "]" * 60,
    "2,000 levels": "[" * 2000 + "]" * 2000,
    "2,000 levels of objects": '{"a":' * 2000 + "1" + "}" * 2000,
    "a key twice": '{"a": 1, "a": 2}',
    "an odd key": '{"a\\u0000\\ud800": "x", "\\n": "y"}',
}
IN_MEMBERS = ("null", "zero", "an empty list", "an empty object", "a key twice", "NaN", "5,000 digits", "NUL")
NAMES = {
    "an empty name": '""',
    "a blank name": '" "',
    "a name with NUL": ODD["NUL"],
    "a name with half a surrogate pair": ODD["half a surrogate pair"],
    "a name with control characters": ODD["control characters"],
    "a name of 200,000 letters": ODD["200,000 letters"],
    "a good entry's name twice": "",
}
Case = tuple[str, str]


def wrong_files(server: Mapping[str, Any], endpoint: Mapping[str, Any]) -> Iterator[Case]:
    """The name of each case, and the whole text of its settings file.

    Each file has the one good server, called GOOD_SERVER, and the one good endpoint, called GOOD_ENDPOINT, unless the
    case is about the whole section; and beside them a second entry, or a key, that holds the wrong value. Some of the
    values are right at some keys.
    """
    good = {"mcpServers": (GOOD_SERVER, json.dumps(server)), "endpoints": (GOOD_ENDPOINT, json.dumps(endpoint))}
    for what, value in (PLAIN | ODD).items():
        yield from (
            (f"the section {section}: {what}", _file(good, {section: value})) for section in (*good, "bridge", "zzz")
        )
        for section in good:
            yield f"an entry of {section}: {what}", _file(good, {section: _entries(good[section], '"odd"', value)})
    for what, name in NAMES.items():
        for section, (same, entry) in good.items():
            named = name or json.dumps(same)
            yield f"{what} in {section}", _file(good, {section: _entries(good[section], named, entry)})
    for section, model, base in (
        ("mcpServers", ServerSettings, {"command": '"cat"'}),
        ("mcpServers", ServerSettings, {"url": '"http://127.0.0.1:9/mcp"'}),
        ("endpoints", EndpointSettings, {"url": '"ws://127.0.0.1:9/?token=another-77"'}),
    ):
        spellings = SPELLINGS if model is ServerSettings else set()
        for what, members in _wrong_members(model, base, spellings):
            entry = _entries(good[section], '"odd"', members)
            yield f"{section}, with {next(iter(base))}, {what}", _file(good, {section: entry})
    for what, members in _wrong_members(BridgeSettings, {}, set()):
        yield f"bridge, {what}", _file(good, {"bridge": members})


def _wrong_members(model: type[BaseModel], base: Mapping[str, str], spellings: Iterable[str]) -> Iterator[Case]:
    """The text of an object whose members are right but for one."""
    for key, inner in [*_keys(model), *((key, None) for key in sorted(spellings)), ("zzz", None)]:
        for what, value in (PLAIN | ODD).items():
            yield f"{key}: {what}", _object({**base, key: value})
        for what in IN_MEMBERS:
            value = (PLAIN | ODD)[what]
            yield f"{key}: a list with {what}", _object({**base, key: f"[{value}]"})
            yield f"{key}: an object with {what}", _object({**base, key: f'{{"x": {value}}}'})
        yield f"{key} twice", _object({**base, key: "1"})[:-1] + f', "{key}": 1}}'
        if inner is not None:
            for what, members in _wrong_members(inner, {}, ()):
                yield f"{key}.{what}", _object({**base, key: members})


def _keys(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel] | None]]:
    """A model's keys as people write them, and the model inside, if one is."""
    for name, field in model.model_fields.items():
        if name != "name":
            inside = [part for part in (field.annotation, *get_args(field.annotation)) if isinstance(part, type)]
            yield to_camel(name), next((part for part in inside if issubclass(part, BaseModel)), None)


def _object(members: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'"{key}": {value}' for key, value in members.items()) + "}"


def _entries(good: tuple[str, str], name: str, value: str) -> str:
    return f'{{"{good[0]}": {good[1]}, {name}: {value}}}'


def _file(good: Mapping[str, tuple[str, str]], changed: Mapping[str, str]) -> str:
    right = {section: f'{{"{name}": {entry}}}' for section, (name, entry) in good.items()}
    return _object({**right, **changed})
