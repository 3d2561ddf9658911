"""Search in the owner's documents: reading files, storing passages in Chroma, finding them again.

Importing this package, or any module of it, loads neither torch nor chromadb: each is imported inside
the function that needs it, so that only the search process and `voice-bridge ingest` pay for them.
"""
