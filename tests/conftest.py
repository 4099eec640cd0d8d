"""Hypothesis profiles and shared fixtures.

``ci`` (the default) draws the same examples on every run; ``dev`` draws a few new ones:
``HYPOTHESIS_PROFILE=dev pytest``. No profile has a deadline: the first call of a kernel
compiles it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Helper modules get pytest's explanations of a failed assertion too.
pytest.register_assert_rewrite("oracle_checks")

_COMMON = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("ci", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("dev", max_examples=20, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of benchmark data, where the environment names one."""
    named = os.environ.get("CLIQUEWISE_DATA")
    if not named:
        pytest.skip("CLIQUEWISE_DATA is not set; it names the folder of benchmark data")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"CLIQUEWISE_DATA names {named}, which is not a folder")
    return folder
