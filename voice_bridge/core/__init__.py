"""What the bridge decides. Pure: events in, effects out, the clock passed in."""
