"""One misbehaving stdio MCP server with many modes: plain JSON lines, no SDK, so that every byte is ours.

    python tests/children.py MODE … [option=value …]          modes and options combine freely

Tools always there: t ("ok"), echo(text), sleep(s) with progress when asked for, pid, env(name; without it all, as
JSON), cwd, crash (exit 7), iserror, rpcerror (-32602, data {"x":1}).

====================  ==============================================================================================
ok                    nothing special
big=N                 t's answer is one line of exactly N bytes (without the line end)
raw                   t's result is RAW_RESULT, byte for byte: numbers and keys a re-dump would spoil
banner                greeting lines before anything else        noise       junk lines before each answer
crlf  bom             \\r\\n line ends; a byte-order mark first    split       t's answer (SPLIT_TEXT) byte by byte
badbyte               t: a line with invalid UTF-8, then the answer "still here"
gbk                   t's answer is encoded in GBK               nan         t's result holds NaN and Infinity
u2028                 t answers U2028_TEXT, unescaped
stderr                300 kB on one stderr line before each answer
stderrflood           2 MB of stderr lines from the start        stderrcr    200 kB of stderr with only \\r before each
die                   exit 3 on the first call, last stderr line "out of cheese"
dieatstart            a message on stderr, exit 1                diesecond   exit 4 when started again (needs file=PATH)
slow=S                S seconds before the first line is read    closestdout on the first call: stdout shut, lives on
deafterm  deafeof     ignores SIGTERM; lives on after stdin ends
tree                  a grandchild that ignores SIGTERM and shares our pipes; tool `grandchild` gives its pid
neverreads            from the first call on, stdin is not read  unasked     answers to ids nobody asked, before each
late=S                t answers after S seconds, others do not wait
progress=N            sleep and t send N notices (sleep: 2 without it), if a progressToken is given
listchanged           tool `change` adds a tool and announces it
pages=N  roundpages   tools/list N at a time; with a cursor that never ends
ask                   tool `ask`(kind: sampling, roots, elicitation, ping) asks the client, returns its answer as JSON
oddtools              tools/list holds entries that are no tools
prompts  resources    one prompt `greet`(who), one resource `memo://one`, one template
inits  seen  line     tools: how often initialized; all messages received so far, as JSON; the call's own line as text
tools=a,b,c           these tools and no others; an unknown name answers "NAME:TOOL"     name=X   serverInfo.name
====================  ==============================================================================================

Whatever the mode, it ends by itself after LIFETIME seconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

Json = dict[str, Any]

LIFETIME = 300.0
RAW_RESULT = (
    '{"content":[{"type":"text","text":"raw \\u0000 \u2028 \\/ é"}],"structuredContent":{"big":1180591620717411303424,'
    '"price":1.10,"huge":1e400,"nineteen":1234567890123456789,"twice":1,"twice":2, "spaced" : [ 1 ]}}'
)
SPLIT_TEXT = "读🎉"
U2028_TEXT = "a\u2028b\u0085c\u2029d"
NOISE = b'[INFO] x\n42\nnull\n{"level":"info"}\n'
BANNER = "Starting server …\n╭──╮ v2.13\n│  │ [INFO] 3 tools\n╰──╯\n\n"
DEFAULT_TOOLS = ("t", "echo", "sleep", "pid", "env", "cwd", "crash", "iserror", "rpcerror")
_MODE_WORDS = (
    "ok raw banner noise crlf bom split badbyte gbk nan u2028 stderr stderrflood stderrcr die dieatstart diesecond"
    " closestdout deafterm deafeof tree neverreads unasked listchanged roundpages ask oddtools prompts resources"
    " inits seen line env cwd pid"
)
MODES = frozenset(_MODE_WORDS.split())
OPTIONS = frozenset({"big", "slow", "late", "progress", "pages", "tools", "name", "file"})
TOOL_OF_MODE = {
    "tree": "grandchild",
    "listchanged": "change",
    "ask": "ask",
    "inits": "inits",
    "seen": "seen",
    "line": "line",
}
SCHEMAS: dict[str, Json] = {
    "echo": {"text": {"type": "string"}},
    "sleep": {"s": {"type": "number"}},
    "env": {"name": {"type": "string"}},
    "ask": {"kind": {"type": "string", "enum": ["sampling", "roots", "elicitation", "ping"]}},
}
QUESTIONS: dict[str, Json] = {
    "sampling": {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5},
    },
    "roots": {"method": "roots/list"},
    "elicitation": {
        "method": "elicitation/create",
        "params": {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}},
    },
    "ping": {"method": "ping"},
}
GRANDCHILD = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep({LIFETIME})"


def text(words: str, **more: object) -> Json:
    return {"content": [{"type": "text", "text": words}], **more}


class Child:
    def __init__(self, modes: set[str], options: dict[str, str]) -> None:
        self.modes = modes
        self.options = options
        self.name = options.get("name", "child")
        self.tools = [name for name in options["tools"].split(",") if name] if "tools" in options else self.all_tools()
        self.inits = 0
        self.seen: list[Json] = []
        self.grandchild = 0
        self.asked: dict[str, Json] = {}
        self.bom = b"\xef\xbb\xbf" if "bom" in modes else b""
        self.lock = threading.Lock()

    def all_tools(self) -> list[str]:
        return [*DEFAULT_TOOLS, *(tool for mode, tool in TOOL_OF_MODE.items() if mode in self.modes)]

    # ---- writing

    def write(self, data: bytes) -> None:
        with self.lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def line(self, data: bytes) -> None:
        bom, self.bom = self.bom, b""
        self.write(bom + data + (b"\r\n" if "crlf" in self.modes else b"\n"))

    def send(self, message: Json) -> None:
        whole = {"jsonrpc": "2.0", **message}
        try:
            self.line(json.dumps(whole, ensure_ascii=False).encode())
        except UnicodeEncodeError:  # half a surrogate pair, which only an escape can carry
            self.line(json.dumps(whole).encode())

    def answer(self, id: object, result: Json) -> None:
        self.send({"id": id, "result": result})

    def refuse(self, id: object, code: int, message: str, **more: object) -> None:
        self.send({"id": id, "error": {"code": code, "message": message, **more}})

    def before_answer(self) -> None:
        if "noise" in self.modes:
            self.write(NOISE)
        if "stderr" in self.modes:
            complain("w" * 300_000)
        if "stderrcr" in self.modes:
            complain("".join(f"\r{percent:3d}% |{'#' * 190}" for percent in range(1000)), end="")
        if "unasked" in self.modes:
            for id in (987654321, "nobody", 0.5):
                self.answer(id, text("nobody asked"))

    # ---- life

    def start(self) -> None:
        if "deafterm" in self.modes:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if "tree" in self.modes:
            self.grandchild = subprocess.Popen([sys.executable, "-c", GRANDCHILD], stdin=subprocess.DEVNULL).pid
        if "dieatstart" in self.modes:
            complain("no database at /nowhere: giving up")
            sys.exit(1)
        if "diesecond" in self.modes:
            self.die_when_started_again()
        if "stderrflood" in self.modes:
            threading.Thread(target=complain, args=(("e" * 99 + "\n") * 20_000, "")).start()
        if "banner" in self.modes:
            self.write(BANNER.encode())
        time.sleep(float(self.options.get("slow", 0)))

    def die_when_started_again(self) -> None:
        mark = Path(self.options["file"])
        if mark.exists():
            complain("started twice")
            sys.exit(4)
        mark.touch()

    def run(self) -> None:
        for line in sys.stdin.buffer:
            if line.strip():
                self.hear(line)
        if "deafeof" in self.modes:
            live_on()

    def hear(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self.refuse(None, -32700, "Parse error")
            return
        self.seen.append(message)
        if "method" not in message:
            self.hear_answer(message)
        elif "id" in message:
            self.before_answer()
            self.hear_request(message, line)

    def hear_answer(self, message: Json) -> None:
        call = self.asked.pop(str(message.get("id")), None)
        if call is not None:
            outcome = {key: message[key] for key in ("result", "error") if key in message}
            self.answer(call["id"], text(json.dumps(outcome, ensure_ascii=False)))

    def hear_request(self, message: Json, line: bytes) -> None:
        id, method, params = message["id"], message["method"], message.get("params") or {}
        if method == "tools/call":
            self.call(id, str(params.get("name")), params, line)
        elif method == "initialize":
            self.inits += 1
            self.answer(id, self.hello(params))
        elif method == "tools/list":
            self.answer(id, self.page(params.get("cursor")))
        elif method == "ping":
            self.answer(id, {})
        else:
            result = self.extra(method, params)
            if result is None:
                self.refuse(id, -32601, f"Method not found: {method}")
            else:
                self.answer(id, result)

    def hello(self, params: Json) -> Json:
        capabilities: Json = {"tools": {"listChanged": "listchanged" in self.modes}}
        capabilities |= {kind: {} for kind in ("prompts", "resources") if kind in self.modes}
        return {
            "protocolVersion": params.get("protocolVersion", "2024-11-05"),
            "capabilities": capabilities,
            "serverInfo": {"name": self.name, "version": "1"},
        }

    def page(self, cursor: str | None) -> Json:
        entries: list[object] = [
            {
                "name": name,
                "description": f"{self.name} {name}",
                "inputSchema": {"type": "object", "properties": SCHEMAS.get(name, {})},
            }
            for name in self.tools
        ]
        if "oddtools" in self.modes:
            entries += [42, None, "tool", [], {"description": "no name"}, {"name": 7}, {"name": None}]
        size = int(self.options.get("pages", len(entries) or 1))
        start = int(cursor or 0)
        page: Json = {"tools": entries[start : start + size]}
        if "roundpages" in self.modes:
            page["nextCursor"] = "0"
        elif start + size < len(entries):
            page["nextCursor"] = str(start + size)
        return page

    def extra(self, method: str, params: Json) -> Json | None:
        memo = {"uri": "memo://one", "name": "one", "mimeType": "text/plain"}
        words = f"Greet {(params.get('arguments') or {}).get('who', 'nobody')}."
        answers: dict[str, dict[str, Json]] = {
            "prompts": {
                "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]},
                "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": words}}]},
            },
            "resources": {
                "resources/list": {"resources": [memo]},
                "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "memo://{id}", "name": "memo"}]},
                "resources/read": {"contents": [{"uri": params.get("uri"), "text": "a memo"}]},
            },
        }
        kind = method.split("/")[0]
        return answers.get(kind, {}).get(method) if kind in self.modes else None

    # ---- tools

    def call(self, id: object, name: str, params: Json, line: bytes) -> None:
        if "die" in self.modes:
            complain("?OUT OF MEMORY\nout of cheese")
            os._exit(3)
        if "closestdout" in self.modes:
            sys.stdout.flush()
            os.close(1)
            os.open(os.devnull, os.O_WRONLY)
            live_on_reading()
        if "neverreads" in self.modes:
            live_on()
        if name not in self.tools:
            self.refuse(id, -32602, f"Unknown tool: {name}")
            return
        tool: Callable[[object, Json, bytes], None] | None = getattr(self, f"tool_{name}", None)
        if tool is None:
            self.answer(id, text(f"{self.name}:{name}"))
        else:
            tool(id, params, line)

    def tool_t(self, id: object, params: Json, line: bytes) -> None:
        if "late" in self.options:
            clock = threading.Timer(float(self.options["late"]), lambda: self.answer(id, text("late")))
            clock.daemon = True
            clock.start()
            return
        if "progress" in self.options:
            self.notify_progress(params, 0)
        self.answer_in_mode(id)

    def answer_in_mode(self, id: object) -> None:
        head = b'{"jsonrpc":"2.0","id":' + json.dumps(id).encode() + b',"result":'
        if "big" in self.options:
            frame = json.dumps({"jsonrpc": "2.0", "id": id, "result": text("")})
            size = int(self.options["big"]) - len(frame)
            self.answer(id, text("x" * size))
        elif "raw" in self.modes:
            self.line(head + RAW_RESULT.encode() + b"}")
        elif "split" in self.modes:
            for byte in head + json.dumps(text(SPLIT_TEXT), ensure_ascii=False).encode() + b"}\n":
                self.write(bytes([byte]))
                time.sleep(0.0005)  # so that the reader sees the bytes one by one
        elif "badbyte" in self.modes:
            self.write(b'{"oops":"\xc4\xe3\xba\xc3"}\n')
            self.answer(id, text("still here"))
        elif "gbk" in self.modes:
            self.line(head + json.dumps(text("你好"), ensure_ascii=False).encode("gbk") + b"}")
        elif "nan" in self.modes:
            self.line(head + b'{"content":[],"structuredContent":{"mean":NaN,"max":Infinity,"min":-Infinity}}}')
        else:
            self.answer(id, text(U2028_TEXT if "u2028" in self.modes else "ok"))

    def notify_progress(self, params: Json, seconds: float) -> None:
        token = (params.get("_meta") or {}).get("progressToken")
        total = int(self.options.get("progress", 2))
        for step in range(1, total + 1):
            if token is not None:
                progress = {"progressToken": token, "progress": step, "total": total}
                self.send({"method": "notifications/progress", "params": progress})
            time.sleep(seconds / total)

    def tool_sleep(self, id: object, params: Json, line: bytes) -> None:
        def nap() -> None:
            self.notify_progress(params, float((params.get("arguments") or {}).get("s", 1)))
            self.answer(id, text("slept"))

        threading.Thread(target=nap, daemon=True).start()

    def tool_echo(self, id: object, params: Json, line: bytes) -> None:
        self.answer(id, text(str((params.get("arguments") or {}).get("text", ""))))

    def tool_env(self, id: object, params: Json, line: bytes) -> None:
        name = (params.get("arguments") or {}).get("name")
        self.answer(id, text(os.environ.get(name, "<unset>") if name else json.dumps(dict(os.environ))))

    def tool_pid(self, id: object, params: Json, line: bytes) -> None:
        self.answer(id, text(str(os.getpid())))

    def tool_cwd(self, id: object, params: Json, line: bytes) -> None:
        self.answer(id, text(str(Path.cwd())))

    def tool_crash(self, id: object, params: Json, line: bytes) -> None:
        complain("crashed as told")
        os._exit(7)

    def tool_iserror(self, id: object, params: Json, line: bytes) -> None:
        self.answer(id, text("boom", isError=True))

    def tool_rpcerror(self, id: object, params: Json, line: bytes) -> None:
        self.refuse(id, -32602, "bad arguments", data={"x": 1})

    def tool_grandchild(self, id: object, params: Json, line: bytes) -> None:
        self.answer(id, text(str(self.grandchild)))

    def tool_change(self, id: object, params: Json, line: bytes) -> None:
        self.tools.append(f"new{len(self.tools)}")
        self.answer(id, text("changed"))
        self.send({"method": "notifications/tools/list_changed"})

    def tool_ask(self, id: object, params: Json, line: bytes) -> None:
        kind = str((params.get("arguments") or {}).get("kind", "roots"))
        question = f"ask-{len(self.asked) + 1}-{id}"
        self.asked[question] = {"id": id}
        self.send({"id": question, **QUESTIONS[kind]})

    def tool_inits(self, id: object, params: Json, line: bytes) -> None:
        self.answer(id, text(str(self.inits)))

    def tool_seen(self, id: object, params: Json, line: bytes) -> None:
        self.answer(id, text(json.dumps(self.seen, ensure_ascii=False)))

    def tool_line(self, id: object, params: Json, line: bytes) -> None:
        self.answer(id, text(line.decode()))


def complain(words: str, end: str = "\n") -> None:
    sys.stderr.write(words + end)
    sys.stderr.flush()


def live_on() -> NoReturn:
    """Neither read nor write any more."""
    time.sleep(LIFETIME)
    sys.exit(0)


def live_on_reading() -> NoReturn:
    """Read what comes, answer nothing, leave when stdin ends."""
    for _ in sys.stdin.buffer:
        pass
    sys.exit(0)


def leave_in_the_end() -> None:
    clock = threading.Timer(LIFETIME, lambda: os._exit(70))
    clock.daemon = True
    clock.start()


def main(arguments: list[str]) -> None:
    options = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    modes = {argument for argument in arguments if "=" not in argument}
    unknown = sorted((modes - MODES) | (options.keys() - OPTIONS))
    if unknown:
        sys.exit(f"children.py: no such mode or option: {', '.join(unknown)}")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    leave_in_the_end()
    child = Child(modes, options)
    child.start()
    child.run()


if __name__ == "__main__":
    main(sys.argv[1:])
