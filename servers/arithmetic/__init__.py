"""Arithmetic for `calculate`: text → Python's spelling → a bounded walk over the syntax tree → a number."""
