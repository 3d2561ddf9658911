"""What people say for a zone that no table has, or that a table gives another meaning: LA is Laos in ISO 3166."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from servers.zones.places import folded

_SAID = {
    "America/New_York": "ET|NY|NYC|DC|Washington DC|Philly|US East|US East Coast|US Eastern|Eastern US|East Coast",
    "America/Chicago": "CT|US Central|Central US",
    "America/Denver": "MT|US Mountain|Mountain US",
    "America/Los_Angeles": "PT|LA|L.A.|SF|Vegas|Bay Area|Silicon Valley|US West|US West Coast|US Pacific|Western US"
    "|Pacific US|West Coast",
    "America/Anchorage": "AKT",
    "America/Edmonton": "Alberta",
    "America/Winnipeg": "Manitoba",
    "America/Regina": "Saskatchewan",
    "America/Halifax": "Nova Scotia|New Brunswick",
    "Europe/London": "Britain|Great Britain|England|Scotland|Wales|Northern Ireland",
    "Europe/Amsterdam": "Holland",
    "Europe/Prague": "Czech Republic",
    "Europe/Skopje": "Macedonia",
    "Asia/Dubai": "UAE|U.A.E.|Emirates|GST",
    "Asia/Riyadh": "KSA",
    "Asia/Seoul": "Korea",
    "Asia/Yangon": "Burma",
    "Asia/Kuala_Lumpur": "MYT",
    "Asia/Singapore": "SGT",
    "Asia/Manila": "PHT",
    "Asia/Bangkok": "ICT",
    "Africa/Abidjan": "Ivory Coast",
    "Australia/Sydney": "AET|NSW|New South Wales",
    "Australia/Brisbane": "Queensland",
    "Australia/Adelaide": "South Australia",
    "Australia/Perth": "Western Australia",
    "Australia/Hobart": "Tasmania",
}
# What is said of two places, with the one that is not answered.
_SAID_OF_TWO = {
    "Washington": ("America/New_York", "the capital", "the state of Washington", "America/Los_Angeles"),
    "Ontario": ("America/Toronto", "the province of Canada", "Ontario in California", "America/Los_Angeles"),
    "British Columbia": ("America/Vancouver", "its coast", "its east", "America/Edmonton"),
    "Quebec": ("America/Toronto", "the province and the city of Canada", "its far east", "America/Blanc-Sablon"),
    "Newfoundland": ("America/St_Johns", "the island", "Labrador", "America/Goose_Bay"),
    "Victoria": ("Australia/Melbourne", "the state of Australia", "Victoria in Canada", "America/Vancouver"),
    "Bali": ("Asia/Makassar", "the island of Indonesia", "Bali in India", "Asia/Kolkata"),
}
ABBREVIATED = {
    "HST": "Pacific/Honolulu",
    **dict.fromkeys(("CET", "CEST", "MET", "MEST"), "Europe/Brussels"),
    **dict.fromkeys(("EET", "EEST"), "Europe/Athens"),
    **dict.fromkeys(("WET", "WEST"), "Europe/Lisbon"),
}
"""Zones of abbreviations that very different countries use; the last ones are the tz database's own choice."""


class Said(NamedTuple):
    """A zone and, when another place is called so too, the note that says which one is answered."""

    zone: str
    note: str


def said(key: str) -> Said | None:
    """Return what people mean by the folded name `key`; None when that is left to the tables."""
    return _all().get(key)


@cache
def _all() -> dict[str, Said]:
    plain = {folded(name): Said(zone, "") for zone, names in _SAID.items() for name in names.split("|")}
    of_two = {
        folded(name): Said(zone, f"{name} is taken as {meant}; for {other} send {other_zone}.")
        for name, (zone, meant, other, other_zone) in _SAID_OF_TWO.items()
    }
    return plain | of_two
