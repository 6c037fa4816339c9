"""Items encoded in blocks: the gradient of the whole batch, in the memory of a block."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.training import Trial

from ncfbench.config import complete
from ncfbench.models.dropout import Dropout, rates_of

SMALL: dict[str, Any] = {"dimension": 8, "word_dimension": 16, "filters": 16, "gru_units": 8}


@pytest.mark.long_cases(r"gru|cnn-iid-plain|bow-neg-regularised")
@pytest.mark.parametrize(
    "settings",
    [
        {"encoder": "cnn", "sampler": "iid", "convolution": "plain"},
        {"encoder": "gru", "sampler": "ns"},
        {"encoder": "mf", "sampler": "ns", "loss": "softmax"},
        {"encoder": "bow", "sampler": "neg", "coupling": "regularised"},
    ],
    ids=lambda each: "-".join(map(str, each.values())),
)
def test_the_gradient_is_that_of_the_whole_batch(tiny, settings):
    """Dropout on, and a last block that is not full: to 1e-6 of its length."""
    found = []
    for block in (0, 24):
        config = complete(
            SMALL | settings | {"batch_size": 32, "negatives": 3, "item_block": block}
        )
        trial = Trial(tiny, config)
        dropout = Dropout(jnp.uint32(0), jnp.uint32(2), rates_of(trial.config))
        value, gradient = trial.gradient(next(trial.batches()), dropout)
        found.append((value, jax.tree.leaves(gradient)))
    (value, whole), (other, cut) = found
    assert other == pytest.approx(value, rel=1e-6)
    length = np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in whole))
    off = np.sqrt(sum(float(np.sum(np.square(a - b))) for a, b in zip(whole, cut, strict=True)))
    assert off <= 1e-6 * length


@pytest.mark.long
def test_activations_of_one_block_are_in_memory(tiny):
    """By the compiler's own account of the step."""
    sizes = []
    for block in (0, 16):
        config = complete(
            SMALL
            | {"encoder": "cnn", "convolution": "plain", "filters": 64, "sampler": "ns"}
            | {"batch_size": 64, "item_block": block}
        )
        trial = Trial(tiny, config)
        traced = trial.trainer.trace(trial.state, next(trial.batches()), trial.content)
        compiled = traced.lower().compile()
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    assert sizes[1] < sizes[0] / 2
