"""The settings: from a file, the environment and the command line to what shall run."""

from voice_bridge.config.loader import (
    find,
    is_script,
    keep_working,
    load,
    load_script,
    load_scripts,
    select,
    shipped_settings,
)
from voice_bridge.config.models import (
    BridgeSettings,
    EndpointSettings,
    LogSettings,
    ServerSettings,
    Settings,
    ToolRules,
)

__all__ = [
    "BridgeSettings",
    "EndpointSettings",
    "LogSettings",
    "ServerSettings",
    "Settings",
    "ToolRules",
    "find",
    "is_script",
    "keep_working",
    "load",
    "load_script",
    "load_scripts",
    "select",
    "shipped_settings",
]
