"""Carries effects out and supervises every long-lived task."""
