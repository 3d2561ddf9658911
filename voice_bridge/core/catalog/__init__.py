"""The merged lists a client sees: which server owns which name, and what the client is told about it."""

from voice_bridge.core.catalog.lists import Catalog, CatalogRemark, Entry, Offer
from voice_bridge.core.catalog.merge import merge
from voice_bridge.names import legal_name

__all__ = ["Catalog", "CatalogRemark", "Entry", "Offer", "legal_name", "merge"]
