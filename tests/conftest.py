"""How Hypothesis works here: the same examples on every machine of the CI, and no test is judged by its speed.

`HYPOTHESIS_PROFILE=deep` looks longer than a CI can.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from voice_bridge.observe.log import LOG

settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("here"), derandomize=True, print_blob=True)
settings.register_profile("deep", settings.get_profile("here"), max_examples=3000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "here"))


@pytest.fixture(scope="session", autouse=True)
def _data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests' bridges and servers keep their files together, and out of the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICE_BRIDGE_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Each test finds the log as a program does at its start; commands and libraries run in-process set it up anew."""
    root = logging.getLogger()
    level = root.level
    LOG.disabled = False
    LOG.setLevel(logging.INFO)
    yield
    root.setLevel(level)
