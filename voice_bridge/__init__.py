"""Lets a cloud voice assistant use the MCP servers on its owner's machine."""

__version__ = "0.1.0"
