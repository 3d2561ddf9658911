"""The Retry-After header (RFC 9110 §10.2.3). Pure: the time is passed in."""

from __future__ import annotations

import email.utils

LONGEST = 3600.0


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds from a Retry-After header: a number or a date (RFC 9110 §10.2.3), an hour at most.

    None when absent or senseless.
    """
    if value is None:
        return None
    value = value.strip()
    try:
        if value.isascii() and value.isdigit():
            seconds = float(value)
        else:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, seconds), LONGEST)
