"""A cluster whose workers are threads of this process: cheap, and all that most tests need."""

from __future__ import annotations

import pytest

pytest.importorskip("distributed", reason="the extra cliquewise[distributed] is not installed")


@pytest.fixture(scope="module")
def client():
    from distributed import Client

    with Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0
    ) as client:
        yield client
