"""Who ask: clouds on a WebSocket, callers in this process."""
