"""Time zones for `get_datetime`: by IANA name, offset, city, country or abbreviation."""
