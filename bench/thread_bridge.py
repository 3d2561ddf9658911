"""What most bridges are: a thread for each pipe between one child and one WebSocket. The bench's point of comparison.

python bench/thread_bridge.py COMMAND …, with MCP_ENDPOINT set.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from websockets.sync.client import connect


def main() -> None:
    """Pipes until the WebSocket closes."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    with connect(os.environ["MCP_ENDPOINT"]) as socket:
        output = child.stdout

        def up() -> None:
            for line in output:
                socket.send(line)

        threading.Thread(target=up, daemon=True).start()
        for message in socket:
            child.stdin.write(str(message) + "\n")
            child.stdin.flush()
    child.kill()


if __name__ == "__main__":
    main()
