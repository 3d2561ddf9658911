"""Names in the alphabet that language models' APIs accept, each told apart from the others. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Final

LONGEST_NAME: Final = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


def is_legal(name: str, longest: int = LONGEST_NAME) -> bool:
    """Whether a name needs no change: `^[A-Za-z0-9_-]{1,64}$`, or as many characters as `longest` says."""
    return 0 < len(name) <= longest and not _ILLEGAL.search(name)


def legal_name(name: str, longest: int = LONGEST_NAME) -> str:
    """The name in the legal alphabet; one with no legal letter, or that must be cut, ends in a hash of the original."""
    if is_legal(name, longest):
        return name
    mapped = _ILLEGAL.sub("_", name)
    if not mapped.strip("_-"):
        return hashed_name("tool", name, longest)
    return mapped if len(mapped) <= longest else hashed_name(mapped, name, longest)


def hashed_name(name: str, told_apart_by: str, longest: int = LONGEST_NAME) -> str:
    """The beginning of a name and a hash of what tells it apart: the same in every process and on every machine."""
    digest = hashlib.sha256(told_apart_by.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: longest - 9]}_{digest}"


def unique_name(name: str, taken: set[str], longest: int) -> str:
    """`name`, or `name_2`, `name_3` … so that it is new in `taken`, to which it is added."""
    chosen, count = name, 1
    while chosen in taken:
        count += 1
        suffix = f"_{count}"
        chosen = name[: longest - len(suffix)] + suffix
    taken.add(chosen)
    return chosen
