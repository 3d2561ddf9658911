"""python -m voice_bridge: the same command as `voice-bridge`."""

from voice_bridge.cli import main

main()
