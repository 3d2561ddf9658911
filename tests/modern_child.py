"""A stdio server that speaks only the 2026-07-28 revision: plain JSON lines, no SDK, strict about the envelope.

Tools: echo(text), meta (the call's own `_meta`, as JSON), slow (one progress notice, then an answer when released or
cancelled), release, cancelled (how many requests were), listens (how many are open), touch(uri), grow (adds a tool),
log (one message for each level the request opted in to), ask (needs an elicitation first).
"""

from __future__ import annotations

import json
import sys
from typing import Any

Json = dict[str, Any]
PREFIX = "io.modelcontextprotocol/"
VERSION = "2026-07-28"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
TOOLS = ["echo", "meta", "slow", "release", "cancelled", "listens", "touch", "grow", "log", "ask"]
LISTENS: dict[object, Json] = {}
WAITING: list[object] = []
CANCELLED: list[object] = []


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def refuse(id_: object, code: int, text: str, **data: object) -> None:
    send(id=id_, error={"code": code, "message": text, **({"data": data} if data else {})})


def done(id_: object, **result: object) -> None:
    send(id=id_, result={"resultType": "complete", **result})


def says(id_: object, words: object) -> None:
    text = words if isinstance(words, str) else json.dumps(words, ensure_ascii=False)
    done(id_, content=[{"type": "text", "text": text}])


def listed(id_: object, member: str, entries: list[Json]) -> None:
    done(id_, ttlMs=0, cacheScope="private", **{member: entries})


def tell(kind: str, wanted: str, **params: object) -> None:
    """A change notice on every subscription that honours it, each with its own mark."""
    for id_, filter_ in LISTENS.items():
        honoured = params.get("uri") in filter_.get(wanted, ()) if "uri" in params else filter_.get(wanted)
        if honoured:
            meta = {PREFIX + "subscriptionId": id_}
            send(method=f"notifications/{kind}", params={**params, "_meta": meta})


def hear(message: Json) -> None:
    id_, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "notifications/cancelled":
        cancelled(params["requestId"])
    elif id_ is None:
        return
    elif method == "initialize":
        refuse(
            id_, -32022, "this server has no handshake", supported=[VERSION], requested=params.get("protocolVersion")
        )
    elif not enveloped(params.get("_meta") or {}):
        refuse(id_, -32602, "params._meta lacks the envelope")
    else:
        answer(id_, str(method), params)


def enveloped(meta: Json) -> bool:
    return meta.get(PREFIX + "protocolVersion") == VERSION and isinstance(meta.get(PREFIX + "clientCapabilities"), dict)


def cancelled(id_: object) -> None:
    CANCELLED.append(id_)
    LISTENS.pop(id_, None)
    if id_ in WAITING:
        WAITING.remove(id_)


def answer(id_: object, method: str, params: Json) -> None:
    if method == "server/discover":
        capabilities = {
            "tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True}, "logging": {},
            "completions": {},
        }  # fmt: skip
        done(id_, supportedVersions=[VERSION], capabilities=capabilities, ttlMs=0, cacheScope="private")
    elif method == "tools/list":
        listed(id_, "tools", [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS])
    elif method == "prompts/list":
        listed(id_, "prompts", [{"name": "welcome", "arguments": [{"name": "who"}]}])
    elif method == "prompts/get":
        words = f"Welcome {params['arguments']['who']}."
        done(id_, messages=[{"role": "user", "content": {"type": "text", "text": words}}])
    elif method == "resources/list":
        listed(id_, "resources", [{"uri": f"note://{name}", "name": name} for name in ("one", "two")])
    elif method == "resources/templates/list":
        listed(id_, "resourceTemplates", [{"uriTemplate": "note://{name}", "name": "note"}])
    elif method == "resources/read":
        done(id_, contents=[{"uri": params["uri"], "text": "a note"}], ttlMs=0, cacheScope="private")
    elif method == "completion/complete":
        done(id_, completion={"values": [params["argument"]["value"] + "nn"]})
    elif method == "subscriptions/listen":
        LISTENS[id_] = params["notifications"]
        meta = {PREFIX + "subscriptionId": id_}
        honoured = {"notifications": params["notifications"], "_meta": meta}
        send(method="notifications/subscriptions/acknowledged", params=honoured)
    elif method == "tools/call":
        call(id_, params["name"], params.get("arguments") or {}, params["_meta"], params)
    else:
        refuse(id_, -32601, f"Method not found: {method}")


def call(id_: object, name: str, arguments: Json, meta: Json, params: Json) -> None:
    if name in ("cancelled", "listens"):
        says(id_, len(CANCELLED if name == "cancelled" else LISTENS))
    elif name in ("echo", "meta"):
        says(id_, arguments.get("text", "") if name == "echo" else meta)
    elif name == "slow":
        slow(id_, meta.get("progressToken"))
    elif name == "release":
        release(id_)
    elif name == "touch":
        tell("resources/updated", "resourceSubscriptions", uri=arguments["uri"])
        says(id_, "touched")
    elif name == "grow":
        TOOLS.append(f"grown{len(TOOLS)}")
        tell("tools/list_changed", "toolsListChanged")
        says(id_, "grown")
    elif name == "log":
        log(id_, meta.get(PREFIX + "logLevel"))
    elif name == "ask":
        ask(id_, params)
    else:
        refuse(id_, -32602, f"Unknown tool: {name}")


def slow(id_: object, token: object) -> None:
    WAITING.append(id_)
    if token is not None:
        send(method="notifications/progress", params={"progressToken": token, "progress": 1, "total": 2})


def release(id_: object) -> None:
    for waiting in WAITING:
        says(waiting, "released")
    WAITING.clear()
    says(id_, "ok")


def log(id_: object, wanted: object) -> None:
    for level in LEVELS[LEVELS.index(wanted) :] if wanted in LEVELS else ():
        send(method="notifications/message", params={"level": level, "data": f"a {level}"})
    says(id_, "logged")


def ask(id_: object, params: Json) -> None:
    answered = (params.get("inputResponses") or {}).get("who")
    if answered is not None:
        says(id_, answered)
        return
    question = {"message": "who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    request = {"method": "elicitation/create", "params": {"mode": "form", **question}}
    send(id=id_, result={"resultType": "input_required", "inputRequests": {"who": request}, "requestState": "s1"})


for line in sys.stdin:
    if line.strip():
        hear(json.loads(line))
