"""Where bytes enter and leave."""
