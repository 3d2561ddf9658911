"""How Hypothesis works here: the same examples on every machine of the CI, and no test is judged by its speed.

`HYPOTHESIS_PROFILE=deep` looks longer than a CI can.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

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
