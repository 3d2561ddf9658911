"""What the README says exists does, and what exists is in the README."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from tests.support import ROOT
from voice_bridge.cli import COMMANDS
from voice_bridge.config import BridgeSettings, EndpointSettings, ServerSettings, ToolRules

README = (ROOT / "README.md").read_text(encoding="utf-8")


def table_keys(heading: str) -> set[str]:
    """The keys in the first column of the table under a heading."""
    section = README.split(heading, 1)[1].split("\n### ")[0].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize(
    ("heading", "model", "spelled"),
    [
        ("### `mcpServers`", ServerSettings, {"transport": "type"}),
        ("### `endpoints`", EndpointSettings, {}),
        ("### `bridge`", BridgeSettings, {}),
    ],
)
def test_the_settings_tables_have_every_key_and_no_other(
    heading: str, model: type[BaseModel], spelled: dict[str, str]
) -> None:
    keys = {to_camel(spelled.get(name, name)) for name in model.model_fields if name != "name"}
    assert table_keys(heading) == keys


def test_the_tools_rules_are_all_shown() -> None:
    row = next(line for line in README.splitlines() if line.startswith("| `tools`"))
    assert all(f'"{name}"' in row for name in ToolRules.model_fields)


def test_every_command_is_documented() -> None:
    assert set(re.findall(r"`voice-bridge (\w+)", README.split("## Commands")[1].split("\n## ")[0])) >= set(COMMANDS)


@pytest.mark.parametrize("command", sorted(set(re.findall(r"voice-bridge ([a-z]+)\b", README)) - {"project"}))
def test_no_command_is_documented_that_does_not_exist(command: str) -> None:
    assert command in COMMANDS


@pytest.mark.parametrize("target", re.findall(r"\]\(((?!http)[^)#]+)", README))
def test_links_lead_to_files_of_the_repository(target: str) -> None:
    assert (ROOT / target).exists()
