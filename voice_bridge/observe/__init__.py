"""Readers of the board of facts."""
