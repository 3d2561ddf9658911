"""Names: legal, distinct, the same whatever the start order, and each the way to its own tool."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.types import ListToolsResult

from tests.core.stage import Json, Stage, frame, only, tool
from tests.wire import FRAGILE, Number, read
from voice_bridge import config
from voice_bridge.config import ToolRules
from voice_bridge.core.catalog import Catalog, Entry, Offer, legal_name, merge
from voice_bridge.core.keys import ServerKey

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def offer(server: str, *names: str, **rules: Any) -> Offer:
    return Offer(
        ServerKey(server), server, ToolRules(**rules), tools=[json.dumps(tool(name)).encode() for name in names]
    )


def owners(catalog: Catalog) -> dict[str, tuple[str, str]]:
    return {name: (entry.server, entry.original) for name, entry in catalog.tools.items()}


# Two servers, one name


def test_two_servers_with_the_same_tools_keep_all_four() -> None:
    sales, stock = offer("sales", "query", "search"), offer("stock", "query", "search")
    assert owners(merge([sales, stock])) == {
        "query": ("sales", "query"),
        "search": ("sales", "search"),
        "stock__query": ("stock", "query"),
        "stock__search": ("stock", "search"),
    }


ODD_NAMES = (
    "time.get",
    "a/b",
    "New Tool",
    "查询天气",
    "x" * 150,
    "",
    "a.b",
    "a_b",
    "a b",
    "天气查询",
    "-",
    "名/名",
    "a\nb",
)


def test_odd_names_become_legal_ones_and_none_is_lost() -> None:
    shown = owners(merge([offer("s", *ODD_NAMES)]))
    assert sorted(original for _, original in shown.values()) == sorted(ODD_NAMES)
    assert all(LEGAL.fullmatch(name) for name in shown)
    assert shown["a_b"] == ("s", "a_b"), "a name that is legal as it is keeps it, whoever maps onto it"
    assert shown["time_get"] == ("s", "time.get")


def test_names_are_the_same_in_every_run() -> None:
    """The parts that tell mapped names apart must not come from `hash()`, which differs between processes."""
    assert legal_name("x" * 150) == "x" * 55 + "_a09244d5"
    assert legal_name("查询天气") == "tool_22cf3c76"


@pytest.mark.parametrize("name", ["_", "-", "--", "___", "a", "A-1_b", "x" * 64])
def test_a_legal_name_is_left_alone_however_odd(name: str) -> None:
    assert legal_name(name) == name
    assert owners(merge([offer("s", name)])) == {name: ("s", name)}


def test_a_mapped_name_never_takes_one_that_exists() -> None:
    shown = owners(merge([offer("first", "a.b"), offer("second", "a_b")]))
    assert shown["a_b"] == ("second", "a_b")
    assert ("first", "a.b") in shown.values()


def test_a_prefixed_name_never_takes_one_that_exists() -> None:
    shown = owners(merge([offer("a", "x"), offer("b", "x"), offer("c", "b__x")]))
    assert shown["b__x"] == ("c", "b__x")
    assert sorted(shown.values()) == [("a", "x"), ("b", "x"), ("c", "b__x")]


def test_servers_whose_names_map_to_one_prefix_stay_apart() -> None:
    shown = owners(merge([offer("a", "x"), offer("s.1", "x"), offer("s/1", "x"), offer("s_1", "x")]))
    assert len(shown) == 4
    assert all(LEGAL.fullmatch(name) for name in shown)


# Rules


def test_include_exclude_rename_describe_are_carried_out_on_the_servers_own_names() -> None:
    rules = {
        "include": ("get_*", "put"),
        "exclude": ("get_secret*",),
        "rename": {"get_time": "time"},
        "describe": {"put": "New"},
    }
    catalog = merge([offer("s", "get_time", "get_secret_key", "put", "delete", **rules)])
    assert owners(catalog) == {"time": ("s", "get_time"), "put": ("s", "put")}
    assert read(catalog.tools["put"].raw)["description"] == "New"
    assert read(catalog.tools["time"].raw)["name"] == "time"


def test_globs_are_case_sensitive_and_literal_where_they_are_no_globs() -> None:
    assert owners(merge([offer("s", "Get", "get", "a[1]", include=("get",))])) == {"get": ("s", "get")}


def test_two_tools_renamed_to_one_name_are_both_there() -> None:
    shown = owners(merge([offer("s", "a", "b", rename={"a": "x", "b": "x"})]))
    assert sorted(original for _, original in shown.values()) == ["a", "b"]
    assert shown["x"] == ("s", "a")


def test_names_can_be_swapped_by_renaming() -> None:
    assert owners(merge([offer("s", "a", "b", rename={"a": "b", "b": "a"})])) == {"b": ("s", "a"), "a": ("s", "b")}


def test_rules_for_tools_do_not_touch_prompts() -> None:
    greet = json.dumps({"name": "greet"}).encode()
    one = Offer(
        ServerKey("s"), "s", ToolRules(rename={"greet": "hello"}, exclude=("*",)), tools=[greet], prompts=[greet]
    )
    catalog = merge([one])
    assert list(catalog.prompts) == ["greet"]
    assert catalog.tools == {}


def test_a_description_that_json_cannot_carry_costs_nothing_else(tmp_path: Path) -> None:
    """JSON5 lets half an emoji through; it must not take the other tools with it."""
    path = tmp_path / "settings.json"
    path.write_text(
        '{"mcpServers":{"s":{"command":"x","tools":{"describe":{"a":"cut \\ud83d"},"rename":{"b":"\\ud83d"}}}}}'
    )
    rules = config.load(path).servers["s"].tools
    catalog = merge([Offer(ServerKey("s"), "s", rules, tools=[json.dumps(tool(name)).encode() for name in "abc"])])
    assert {original for _, original in owners(catalog).values()} == {"a", "b", "c"}
    for entry in catalog.tools.values():
        read(entry.raw)


# What a server wrote


def test_an_untouched_tool_is_shown_byte_for_byte() -> None:
    raw = b'{ "name" : "t", "inputSchema":{"type":"object","maximum":1e400,"const":2.50},"x":1,"x":2 }'
    assert merge([Offer(ServerKey("s"), "s", tools=[raw])]).tools["t"].raw == raw


@pytest.mark.parametrize("payload", FRAGILE)
def test_a_renamed_tool_keeps_the_bytes_of_all_else(payload: bytes) -> None:
    raw = b'{"name":"t","inputSchema":{"default":' + payload + b'},"_meta":{"k":' + payload + b"}}"
    shown = merge([Offer(ServerKey("s"), "s", ToolRules(rename={"t": "u"}), tools=[raw])]).tools["u"].raw
    assert read(shown)["name"] == "u"
    assert shown.count(payload) == raw.count(payload)


ODD_ENTRIES = (
    b'{"description":"no name"}', b'{"name":7}', b'{"name":null}', b'{"name":["t"]}', b'{"name":{"a":1}}', b"{}",
    rb'{"name":"cut \ud83d","inputSchema":{}}', b'{"name":true}',
)  # fmt: skip


def test_odd_entries_never_cost_the_rest_of_the_list() -> None:
    tools = [*ODD_ENTRIES, b'{"name":"good"}', *ODD_ENTRIES, b'{"name":"also"}', b'{"name":"good","title":"again"}']
    catalog = merge(
        [Offer(ServerKey("s"), "s", tools=tools, prompts=tools, resources=[*ODD_ENTRIES, b'{"uri":"memo://1"}'])]
    )
    assert {"good", "also"} <= set(catalog.tools)
    assert {"good", "also"} <= set(catalog.prompts)
    assert list(catalog.resources) == ["memo://1"]
    assert "title" not in read(catalog.tools["good"].raw), "the first of two tools with one name is the one that counts"
    for listing in ("tools", "prompts", "resources"):
        read(b"{" + catalog.listing(listing) + b"}")


@pytest.mark.parametrize(
    "schema", ["", ',"inputSchema":null', ',"inputSchema":[]', ',"inputSchema":"x"', ',"inputSchema":true']
)
def test_a_tool_without_a_usable_schema_gets_the_widest_one(schema: str) -> None:
    """A client's parser would refuse the whole list for it."""
    shown = merge([Offer(ServerKey("s"), "s", tools=[f'{{"name":"t"{schema}}}'.encode()])]).tools["t"].raw
    assert read(shown)["inputSchema"] == {"type": "object"}


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('"inputSchema":{}', {"inputSchema": {"type": "object"}}),
        ('"inputSchema":{"type":"string"}', {"inputSchema": {"type": "object"}}),
        ('"inputSchema":{"type":["object","null"]}', {"inputSchema": {"type": "object"}}),
        ('"inputSchema":{"type":"object","properties":null,"required":"a"}', {"inputSchema": {"type": "object"}}),
        ('"inputSchema":{"properties":{"a":{}}}', {"inputSchema": {"type": "object", "properties": {"a": {}}}}),
        (
            '"description":5,"title":null,"annotations":[],"outputSchema":null,"icons":{}',
            {"inputSchema": {"type": "object"}},
        ),
    ],
)
def test_a_member_of_a_wrong_type_never_costs_the_list_at_a_client_that_checks(
    written: str, shown: dict[str, object]
) -> None:
    raw = f'{{"name":"t",{written}}}'.encode()
    listed = read(b"{" + merge([Offer(ServerKey("s"), "s", tools=[raw])]).listing("tools") + b"}")
    assert listed == {"tools": [{"name": "t", **shown}]}
    ListToolsResult.model_validate(listed)


# Names that were announced


def test_an_announced_name_keeps_its_owner_when_an_earlier_server_comes_late() -> None:
    early, late = offer("late", "x"), offer("early", "x")
    before = merge([late])
    after = merge([early, late], before)
    assert owners(after) == {"x": ("early", "x"), "late__x": ("late", "x")}
    assert owners(merge([early, late])) == {"x": ("late", "x"), "early__x": ("early", "x")}


def test_an_announced_name_is_not_given_to_somebody_else_when_its_owner_goes() -> None:
    before = merge([offer("a", "x"), offer("b", "y")])
    after = merge([offer("b", "y"), offer("c", "x")], before)
    assert owners(after) == {"y": ("b", "y"), "c__x": ("c", "x")}


def test_moving_a_name_is_noticed() -> None:
    before = merge([offer("b", "x")])
    assert before.moves_a_name(merge([offer("a", "x"), offer("b", "x")]))
    assert not before.moves_a_name(merge([offer("b", "x"), offer("c", "y")]))


# Resources


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("memo://{id}", "memo://1", True),
        ("memo://{id}", "memo://1/2", False),
        ("file:///{+path}", "file:///a/b/c", True),
        ("memo://{id}/notes", "memo://1/notes", True),
        ("memo://{id}/notes", "memo://1/other", False),
        ("a.b://{x}", "aXb://1", False),
        ("db://{table}{?limit}", "db://users?limit=3", True),
        ("memo://(", "memo://(", True),
    ],
)
def test_a_template_answers_for_what_it_can_expand_to(template: str, uri: str, fits: bool) -> None:
    templates = [json.dumps({"uriTemplate": template, "name": "t"}).encode()]
    other = json.dumps({"uri": "memo://other", "name": "o"}).encode()
    same_schemes = [json.dumps({"uri": uri.partition(":")[0] + "://else", "name": "e"}).encode()]
    catalog = merge(
        [Offer(ServerKey("t"), "t", templates=templates), Offer(ServerKey("o"), "o", resources=[other, *same_schemes])]
    )
    assert (catalog.owner_of_uri(uri) == "t") is fits


@pytest.mark.parametrize("template", ["{+a}{+b}{+c}{+d}{+e}{+f}{+g}{+h}!", "x{a}{b}{c}{d}{e}{f}{g}{h}{i}!"])
def test_a_template_cannot_make_matching_take_for_ever(template: str) -> None:
    catalog = Catalog(templates={template: Entry(ServerKey("s"), template, b"{}")})
    assert catalog.owner_of_uri("x" * 1000) is None


# Config → catalogue → names: any servers, any tools, any rules


SOME_NAMES = (
    "t", "x", "X", "a.b", "a_b", "a/b", "New Tool", "查询天气", "天气", "_", "", "s1__x", "s2__t", "s 2__x", "a[1]",
    "*", "tool_22cf3c76", "x" * 64, "x" * 65, "x" * 150,
)  # fmt: skip
words = st.sampled_from(SOME_NAMES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
globs = st.sampled_from(["*", "x*", "t", "a*"])


@st.composite
def servers_in_a_file(draw: st.DrawFn) -> tuple[dict[str, Json], dict[str, list[str]]]:
    keys = draw(st.lists(st.sampled_from(["s1", "s2", "s 2", "s.2", "服务"]), min_size=1, max_size=4, unique=True))
    entries, offered = dict[str, Json](), dict[str, list[str]]()
    for key in keys:
        offered[key] = draw(st.lists(words, max_size=7))
        some = st.lists(st.sampled_from(offered[key]), max_size=3) if offered[key] else st.just([])
        rules: Json = {
            "rename": {name: draw(words) for name in draw(some)},
            "describe": {
                name: draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=9)) for name in draw(some)
            },
            "exclude": draw(st.lists(globs.filter(lambda glob: glob != "*"), max_size=1)),
        }
        if draw(st.booleans()):
            rules["include"] = draw(st.lists(globs, max_size=3))
        entries[key] = {"command": "x", "tools": rules}
    return entries, offered


def shown_by(rules: Json, name: str) -> bool:
    """The rule, said a second time: globs here are a name or a beginning with a star."""

    def fits(glob: str) -> bool:
        return name.startswith(glob[:-1]) if glob.endswith("*") else name == glob

    return any(map(fits, rules.get("include", ["*"]))) and not any(map(fits, rules["exclude"]))


def names_after(
    entries: dict[str, Json], offered: dict[str, list[str]], start_order: Sequence[str]
) -> tuple[Stage, Json]:
    """A stage whose servers became ready in that order, and the tools a new client sees, by name."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "settings.json")
        path.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
        loaded = config.load(path)
    assert list(loaded.servers) == list(entries)
    assert loaded.problems == {}
    stage = Stage()
    for key, server in loaded.servers.items():
        stage.server(
            key, *(tool(name, description=f"{key}: {name}") for name in offered[key]), rules=server.tools, ready=False
        )
    for key in start_order:
        stage.start(key)
    stage.client("c")
    return stage, {entry["name"]: entry for entry in stage.lists("c")}


@given(st.data(), servers_in_a_file())
@settings(max_examples=60)
def test_exposed_names_are_legal_distinct_stable_and_each_reaches_its_own_tool(
    data: st.DataObject, described: tuple[dict[str, Json], dict[str, list[str]]]
) -> None:
    entries, offered = described
    stage, shown = names_after(entries, offered, list(entries))
    wanted = {(key, name) for key in entries for name in offered[key] if shown_by(entries[key]["tools"], name)}
    assert all(LEGAL.fullmatch(name) for name in shown)
    assert len(shown) == len(wanted), "every tool has a name of its own"

    reached = set()
    for number, (name, entry) in enumerate(shown.items()):
        (send,) = stage.says("c", frame("tools/call", number, {"name": name, "arguments": {"n": number}}))
        call = read(send.data)["params"]
        assert call["arguments"] == {"n": Number(number)}
        rules = entries[send.to]["tools"]
        description = rules["describe"].get(call["name"], f"{send.to}: {call['name']}")
        assert entry["description"] == description, "the list tells of the tool that is called"
        reached.add((send.to, call["name"]))
    assert reached == wanted

    other_order = data.draw(st.permutations(list(entries)))
    _, again = names_after(entries, offered, other_order)
    assert {name: entry["description"] for name, entry in again.items()} == {
        name: entry["description"] for name, entry in shown.items()
    }
    for key, name in wanted:
        wish = entries[key]["tools"]["rename"].get(name, name)
        wishes = [w for k, n in wanted for w in [entries[k]["tools"]["rename"].get(n, n)]]
        if LEGAL.fullmatch(wish) and wishes.count(wish) == 1 and not any(w.endswith("__" + wish) for w in wishes):
            assert wish in shown, "a legal name nobody else wants is used as it is"


def test_an_unknown_name_is_refused_by_name() -> None:
    stage = Stage()
    stage.server("s", "t")
    stage.client("c")
    refused = only(stage.calls("c", "nope", id="q"), "c")
    assert refused["id"] == "q"
    assert refused["error"]["code"] == read(b"-32602")
    assert "'nope'" in refused["error"]["message"]
