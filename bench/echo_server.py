"""The smallest MCP server in plain JSON lines, so that what is timed is the bridge. `--slow S` starts late."""

from __future__ import annotations

import json
import sys
import time

if "--slow" in sys.argv:
    time.sleep(float(sys.argv[sys.argv.index("--slow") + 1]))
TOOL = {"name": "echo", "description": "Say it back.", "inputSchema": {"type": "object"}}

for line in sys.stdin.buffer:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message:
        continue
    if method == "initialize":
        result: object = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": message["params"]["arguments"].get("text", "")}]}
    else:
        result = {}
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n")
    sys.stdout.buffer.flush()
