"""The HTTP headers that repeat a message's facts for what stands between us and a remote server. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from msgspec import Raw

from voice_bridge.protocol import era, jsonrpc


class Routing:
    """Knows what each message's headers must say, in each era's way.

    `MCP-Protocol-Version` since 2025-06-18; `Mcp-Method`, `Mcp-Name` and `Mcp-Param-*` since 2026-07-28 (basic/
    transports, "Standard request headers" and "Custom headers").
    """

    def __init__(self) -> None:
        self._version = ""
        self._awaited: dict[bytes, str] = {}
        self._param_headers: dict[str, Mapping[tuple[str, ...], str]] = {}

    def headers(self, method: str, id_: object, params: bytes) -> dict[str, str]:
        """The headers for one message of ours."""
        modern = era.version_of(params)
        if isinstance(id_, Raw) and (method == "initialize" or (modern and method == "tools/list")):
            self._awaited[bytes(id_)] = method
        if modern is None:
            return {MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version and method != "initialize" else {}
        headers = {MCP_PROTOCOL_VERSION_HEADER: modern, MCP_METHOD_HEADER: method}
        members = jsonrpc.members(params)
        name = jsonrpc.load(members.get(NAME_BEARING_METHODS.get(method, ""), b"null"))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
        if method == "tools/call" and name in self._param_headers:
            arguments = jsonrpc.load(members.get("arguments", b"{}"))
            headers |= mcp_param_headers(self._param_headers[name], arguments if isinstance(arguments, dict) else {})
        return headers

    def learn(self, id_: bytes, result: Raw) -> None:
        """Notes what a result says about later headers."""
        method = self._awaited.pop(id_, "")
        if method == "initialize":
            version = jsonrpc.load(jsonrpc.members(result).get("protocolVersion", b"null"))
            self._version = version if isinstance(version, str) else ""
        elif method and b'"x-mcp-header"' in bytes(result):
            for entry in jsonrpc.elements(jsonrpc.members(result).get("tools", b"[]")):
                tool = jsonrpc.load(entry)
                schema = tool.get("inputSchema") if isinstance(tool, dict) else None
                if schema and find_invalid_x_mcp_header(schema) is None:
                    self._param_headers[tool["name"]] = x_mcp_header_map(schema)
