"""Makes an MCP tool's input schema one that the Messages API takes.

The API wants `type: object` at the top, no `oneOf`/`anyOf`/`allOf` there, and property names of
`[a-zA-Z0-9_.-]{1,64}` (Messages API, tool definitions). MCP asks only for an object schema.
"""

from __future__ import annotations

import re
from typing import Any

from voice_bridge.names import unique_name

Schema = dict[str, Any]

_COMBINERS = ("allOf", "anyOf", "oneOf")
_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_DEEPEST = 16


class UnusableSchema(ValueError):
    """The schema describes no object, so no tool call could fit it."""


def repair(schema: object) -> tuple[Schema, dict[str, str]]:
    """A schema the API takes, and {its property name: the server's} where the two differ.

    Raises `UnusableSchema` for a schema of something that is not an object.
    """
    if schema is None or schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise UnusableSchema(f"its input schema is not an object but {type(schema).__name__}")
    flat = _flatten(schema, schema, 0)
    flat["type"] = "object"
    flat.pop("$schema", None)
    return _rename_properties(flat)


def _flatten(schema: Schema, root: Schema, depth: int) -> Schema:
    """One level without references and combiners; what they said is merged into the properties."""
    if depth > _DEEPEST:
        raise UnusableSchema("its input schema refers to itself")
    if "$ref" in schema:
        target = _resolve(schema["$ref"], root)
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **rest}
        return _flatten(schema, root, depth + 1)
    _require_object(schema)
    result = {key: value for key, value in schema.items() if key not in _COMBINERS}
    properties = result.get("properties")
    result["properties"] = dict(properties) if isinstance(properties, dict) else {}
    required = _names(result.pop("required", None))
    for part in _parts(schema, "allOf"):
        part = _flatten(part, root, depth + 1)
        result["properties"] = {**part["properties"], **result["properties"]}
        required += _names(part.get("required"))
    for combiner in ("anyOf", "oneOf"):
        parts = [_flatten(part, root, depth + 1) for part in _parts(schema, combiner) if _is_object(part, root)]
        if parts:
            required += _merge_alternatives(result, parts)
    required = list(dict.fromkeys(name for name in required if name in result["properties"]))
    if required:
        result["required"] = required
    return result


def _merge_alternatives(result: Schema, parts: list[Schema]) -> list[str]:
    """Puts every alternative's properties into `result`; returns the names all of them require."""
    found: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part["properties"].items():
            kinds = found.setdefault(name, [])
            if value not in kinds:
                kinds.append(value)
    for name, kinds in found.items():
        result["properties"].setdefault(name, kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
    groups = [_names(part.get("required")) for part in parts]
    common = [name for name in groups[0] if all(name in group for group in groups)]
    choices = [" and ".join(group) for group in groups if group]
    if len(set(choices)) > 1:
        hint = f"Give one of these groups of arguments: {'; or '.join(dict.fromkeys(choices))}."
        result["description"] = " ".join(filter(None, (result.get("description"), hint)))
    return common


def _rename_properties(schema: Schema) -> tuple[Schema, dict[str, str]]:
    properties: Schema = {}
    renamed: dict[str, str] = {}
    taken = {name for name in schema["properties"] if _PROPERTY.fullmatch(name)}
    for name, value in schema["properties"].items():
        safe = name
        if not _PROPERTY.fullmatch(name):
            safe = unique_name(re.sub(r"[^a-zA-Z0-9_.-]", "_", name)[:64] or "argument", taken, 64)
            renamed[safe] = name
            value = _with_real_name(value, name)
        properties[safe] = value
    schema["properties"] = properties
    if renamed:
        back = {real: safe for safe, real in renamed.items()}
        schema["required"] = [back.get(name, name) for name in schema.get("required", [])]
    return schema, renamed


def _with_real_name(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        return value
    return {**value, "description": " ".join(filter(None, (f"({name})", value.get("description"))))}


def _parts(schema: Schema, combiner: str) -> list[Schema]:
    parts = schema.get(combiner)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _names(required: object) -> list[str]:
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _require_object(schema: Schema) -> None:
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise UnusableSchema(f"its input schema is of type {kind!r}, not 'object'")


def _is_object(schema: Schema, root: Schema) -> bool:
    """False for an alternative such as `{"type": "null"}`, which a tool call can never be."""
    if "$ref" in schema:
        schema = _resolve(schema["$ref"], root)
    kind = schema.get("type", "object")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _resolve(reference: object, root: Schema) -> Schema:
    """The target of a local JSON Pointer reference (RFC 6901)."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        raise UnusableSchema(f"its input schema refers to {reference!r}, which is not in the schema")
    target: object = root
    for step in reference[2:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        target = target.get(step) if isinstance(target, dict) else None
    if not isinstance(target, dict):
        raise UnusableSchema(f"its input schema refers to {reference!r}, which is not in the schema")
    return target
