"""URI templates: what fits them, and that no template makes the answer late."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from voice_bridge.core.catalog import Catalog, Entry
from voice_bridge.core.catalog.uris import first_fit
from voice_bridge.core.keys import ServerKey

LETTERS = 100_000


def fits(template: str, uri: str) -> bool:
    return first_fit([template], uri) is not None


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("", "", True),
        ("", "x", False),
        ("x://a", "x://a", True),
        ("x://a", "x://ab", False),
        ("x://a", "x://", False),
        ("{a}", "", True),
        ("{a}", "x/y", False),
        ("{+a}", "x/y", True),
        ("x://{a}{b}/c", "x://1/c", True),
        ("x://{a}{b}/c", "x://1/2/c", False),
        ("x://{a}{+b}{c}/c", "x://1/2/c", True),
        ("x://{id}-{id}", "x://a-b-c", True),
        ("x://{a}b", "x://abab", True),
        ("x://{a}/{b}", "x://1/2", True),
        ("x://{a,b}", "x://1,2", True),
        ("x://{a*}", "x://1,2", True),
        ("x://{a:3}", "x://123", True),
        ("x://a{?q,r}", "x://a", True),
        ("x://a{?q,r}", "x://a?q=1/2&r=3", True),
        ("x://a{?q,r}", "x://ab", False),
        ("x://a?b=1{&q}", "x://a?b=1&q=2", True),
        ("x://a{#part}", "x://a#b/c", True),
        ("x://a{#part}", "x://ab", False),
        ("x://a{/path*}", "x://a/b/c", True),
        ("x://a{/path*}", "x://a", True),
        ("x://a{.ext}", "x://a.txt", True),
        ("x://a{.ext}", "x://a.b/c", False),
        ("x://a{;p}", "x://a;p=1", True),
        ("x://{a", "x://{a", True),
        ("x://{a", "x://1", False),
        ("x://a}", "x://a}", True),
        ("x://{{a}}", "x://{1}", True),
        ("x://{}", "x://1", True),
        ("x://.*", "x://abc", False),
        ("笔记://{id}/页", "笔记://早/页", True),
        ("笔记://{id}/页", "笔记://早/夜", False),
        ("x://{a}\ud83d", "x://1\ud83d", True),
    ],
)
def test_what_a_template_can_expand_to(template: str, uri: str, expected: bool) -> None:
    assert fits(template, uri) is expected


ANYTHING = {
    "+": ".*",
    "/": "(/.*)?",
    "?": r"(\?.*)?",
    "&": "(&.*)?",
    "#": "(#.*)?",
    ".": r"(\.[^/]*)?",
    ";": "(;[^/]*)?",
}


def by_backtracking(template: str, uri: str) -> bool:
    """The same rule as a regular expression that tries every way."""
    pattern = ""
    for part in re.findall(r"\{[^{}]*\}|[^{]+|\{", template):
        variable = part[:1] == "{" and part[-1:] == "}"
        pattern += ANYTHING.get(part[1:2], "[^/]*") if variable else re.escape(part)
    return re.fullmatch(pattern, uri, re.DOTALL) is not None


parts = st.sampled_from(["a", "b", "/", "ab", "aa", "?", "é", "{", "}", "{x}", "{+x}", "{#x}", "{.x}", "{/x}", "{;x}",
                         "{?x,y}", "{&x}", "{}"])  # fmt: skip


@given(st.lists(parts, max_size=7).map("".join), st.text("ab/?#.;&é{}\n", max_size=10))
@example("{a}ab{b}", "aab")
def test_a_template_fits_what_trying_every_way_would_fit(template: str, uri: str) -> None:
    assert fits(template, uri) is by_backtracking(template, uri)


@given(st.data(), st.lists(parts.filter(lambda part: part not in "{}"), max_size=7))
def test_a_template_fits_all_that_it_expands_to(data: st.DataObject, template: list[str]) -> None:
    value = st.text("ab.é", max_size=3)
    uri = ""
    for part in template:
        lead = part[1:2] if part[1:2] in tuple("#./;?&") else ""
        uri += lead + data.draw(value) if part.startswith("{") else part
    assert fits("".join(template), uri)


@pytest.mark.parametrize(
    "template",
    [
        "x://{a}a{b}a{c}a{d}a{e}!",
        "x://{+a}a{+b}a{+c}a{+d}a{+e}!",
        "x://" + "{a}a" * 1000 + "!",
        "x://" + "{+a}aa{b}" * 1000 + "!",
        "x://" + "{a}" * 1000 + "!",
        "x://{+z}" + "{?a}{/b}{.c}" * 300 + "!",
        "x://{a}" + "a" * 2000 + "b{c}!",
    ],
)
def test_no_template_makes_an_answer_late(template: str) -> None:
    """All ways tried one after the other would be more than 10**20 steps."""
    begun = time.process_time()
    assert not fits(template, "x://" + "a" * LETTERS)
    assert not fits(template, "x://" + "a/" * (LETTERS // 2))
    assert fits(template[:-1].replace("b{c}", ""), "x://" + "a" * LETTERS)
    assert time.process_time() - begun < 5


def test_the_first_of_several_templates_answers() -> None:
    templates = {template: Entry(ServerKey(server), template, b"{}") for server, template in (
        ("a", "x://a{?q}"), ("b", "x://{id}"), ("c", "x://{+rest}"),
    )}  # fmt: skip
    catalog = Catalog(templates=templates)
    assert [catalog.owner_of_uri(uri) for uri in ("x://a?q=1", "x://ab", "x://a/b")] == ["a", "b", "c"]
    assert catalog.owner_of_uri("y://a") is None


def test_a_resource_in_a_list_goes_before_every_template() -> None:
    one = {"x://a": Entry(ServerKey("listed"), "x://a", b"{}")}
    catalog = Catalog(resources=one, templates={"x://{id}": Entry(ServerKey("template"), "x://{id}", b"{}")})
    assert catalog.owner_of_uri("x://a") == "listed"
