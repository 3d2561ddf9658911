"""The bytes and revisions of MCP. Pure: no clock, no task, no socket."""
