"""What the devices of a run send each other in an iteration."""

from __future__ import annotations

from ncfbench.data import Dataset
from ncfbench.distributed.bytes_sent import Sizes
from ncfbench.sampling import Sampler
from ncfbench.training.step import Trainer


def sizes(trainer: Trainer, sampler: Sampler, item_slots: int, dataset: Dataset) -> Sizes | None:
    """Of a step on the sampler's batches; None for one device."""
    if trainer.layout is None:
        return None
    user_slots = len(sampler.assemble(sampler.draw(0, 1)[0]).users)
    return trainer.layout.sizes(
        trainer.shapes.parameters, user_slots, item_slots, dataset.tokens_IxL.shape[1]
    )


def sent_bytes(
    trainer: Trainer, sampler: Sampler, item_slots: int, dataset: Dataset
) -> dict[str, dict[str, float]]:
    """For ``environment.json``: bytes that each device sends in an iteration, by what they are;
    nothing for one device.
    """
    found = sizes(trainer, sampler, item_slots, dataset)
    return {} if found is None else {"sent_bytes": found.sent(trainer.config.share)}
