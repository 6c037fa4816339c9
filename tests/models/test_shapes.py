"""Shapes of plug-ins: what is wrong is named before a folder is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ncfbench.config import Locations, complete
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.models.shapes import require_shapes
from ncfbench.training.run import run

MODULE = """
import jax.numpy as jnp
from flax import nnx
from ncfbench.models.interaction import DotProduct, Interaction
from ncfbench.models.losses import Pairwise


class Right(nnx.Module):
    width = 0

    def __init__(self, config, data, *, rngs):
        self.words = nnx.Embed(data.words + 1, config.dimension + self.width, rngs=rngs)

    def __call__(self, texts):
        return (self.words(texts.tokens) * texts.present[..., None]).sum(axis=1)


class Wide(Right):
    width = 3


class Words(Right):
    def __call__(self, texts):
        return self.words(texts.tokens)


class Half(Right):
    def __call__(self, texts):
        return super().__call__(texts).astype(jnp.float16)


class Pair(Right):
    def __call__(self, texts):
        return super().__call__(texts), texts.lengths


class Fails(Right):
    def __call__(self, texts):
        return super().__call__(texts) @ jnp.ones((3, 4))  # LINE


class Tower(nnx.Module):
    def __init__(self, config, data, *, rngs):
        self.vectors = nnx.Embed(data.users, 3, rngs=rngs)

    def __call__(self, users):
        return self.vectors(users.rows)


class Products(Interaction):
    def pairs(self, users, items):
        return users * items


class Transposed(DotProduct):
    def matrix(self, users, items):
        return items @ users.T


class Rowless(Pairwise):
    def pair(self, positive, negative):
        return jnp.maximum(negative - positive + 0.5, 0)

    def rows(self, positive, negative, weight, lambda_):
        return jnp.sum(weight * self.pair(positive[:, None], negative))


class RightLoss(Rowless):
    rows = Pairwise.rows
"""
LINE = next(n for n, line in enumerate(MODULE.splitlines(), 1) if "# LINE" in line)
WRONG: list[tuple[dict[str, str], str]] = [
    ({"encoder": "Wide"}, "The encoder {} returns float32[7, 11] for 7 items, and it must return"),
    (
        {"encoder": "Words"},
        "returns float32[7, 12, 8] for 7 items, and it must return float32[7, 8]",
    ),
    ({"encoder": "Half"}, "{} returns float16[7, 8] for 7 items, and it must return float32[7, 8]"),
    ({"encoder": "Pair"}, "{} returns a tuple for 7 items, and it must return float32[7, 8]"),
    (
        {"encoder": "Fails"},
        f"The encoder {{}} fails (shaped.py, line {LINE}): TypeError: dot_general",
    ),
    ({"user_tower": "Tower"}, "The user tower {} returns float32[5, 3] for 5 users, and it must"),
    ({"interaction": "Products"}, "returns float32[5, 8] from pairs for users (5, 8) and items"),
    ({"interaction": "Transposed"}, "returns float32[7, 5] from matrix for users (5, 8) and items"),
    ({"loss": "Rowless"}, "{} returns float32[] for 5 links of 3 negatives, and it must return"),
]


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "shaped.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "plugins"))


def settings(**choices: str) -> dict[str, Any]:
    own = {kind: f"shaped:{name}" for kind, name in choices.items()}
    return {"dataset": "tiny", "sampler": "ns", "batch_size": 64, "dimension": 8, **own}


@pytest.mark.parametrize(("choices", "message"), WRONG)
def test_a_wrong_shape_is_named(tiny: Dataset, choices: dict[str, str], message: str) -> None:
    config = complete(settings(**choices))
    (name,) = choices.values()
    with pytest.raises(UsageError) as caught:
        require_shapes(config, tiny)
    assert message.format(f"shaped:{name}") in str(caught.value)


def test_right_shapes_pass(tiny: Dataset) -> None:
    require_shapes(complete(settings(encoder="Right", loss="RightLoss")), tiny)
    require_shapes(complete(settings()), tiny)


def test_no_folder_is_made(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="shaped:Wide returns"):
        run(complete(settings(encoder="Wide")), Locations(data_dir, tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()
