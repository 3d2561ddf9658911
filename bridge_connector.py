"""python bridge_connector.py [SCRIPT | NAME …]: the same as `voice-bridge run`."""

import sys

from voice_bridge.cli import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
