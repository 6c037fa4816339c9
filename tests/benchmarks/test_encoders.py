"""The benchmark of the encoders' two ways, on a few words."""

from __future__ import annotations

import bench_encoders as bench
import pytest

from ncfbench.errors import CheckFailedError
from ncfbench.models.encoders import cnn


def test_ways_that_disagree_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cnn.plain_pool
    monkeypatch.setattr(cnn, "plain_pool", lambda *arguments: plain(*arguments) + 1)
    with pytest.raises(CheckFailedError, match="cnn: the plain and the fast way disagree"):
        bench.programs("cnn", 3, 6)
