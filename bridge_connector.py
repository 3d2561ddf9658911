"""python bridge_connector.py [SCRIPT | NAME …]: the same as `voice-bridge run`."""

import sys

if __name__ == "__main__":
    try:
        from voice_bridge.cli import main

        main(["run", *sys.argv[1:]])
    except KeyboardInterrupt:  # Ctrl-C while Python still loads the rest
        sys.exit(0)
