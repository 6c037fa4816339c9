"""A process that times programs in a given order, a block of each for each line that it reads.

    python tests/timed_order.py DATA_DIR g,strat-ns,others

``g``: 3,000 items, forward and backward; ``strat-ns``: the step of that sampler; ``others``: what a
profile has beside them. It starts itself again with the allocator that ``ncfbench`` would choose.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ncfbench.timing import allocator

if __name__ == "__main__":
    allocator.restart()

from ncfbench.config import complete
from ncfbench.data.store import load
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling import rounds
from ncfbench.profiling.calibration import BatchMaker
from ncfbench.profiling.cost_model import Counts
from ncfbench.profiling.parts import Parts
from ncfbench.rng import Streams
from ncfbench.sampling import batches
from ncfbench.training.step import Trainer

ITEMS = 3000
"""Items that ``g`` embeds."""
OTHERS = (
    Counts(512, 92, 5632, "vectors"),
    Counts(5632, 3000, 5632, "vectors"),
    Counts(512, 1300, 5632, "vectors"),
    Counts(512, 500, 512 * 501, "matrix"),
)
"""Steps beside the two."""


def timed(data_dir: Path, names: list[str]) -> dict[str, rounds.Timed]:
    """Compile the programs, in their order."""
    dataset = load(data_dir, "long")
    config = complete({"dataset": "long", "encoder": "cnn", "sampler": "strat-ns"})
    trainer, state = Trainer.create(config, dataset)
    content, maker = DeviceContent.of(dataset), BatchMaker(dataset.graph, config)
    steps = rounds.Steps(state, content)
    parts = Parts(*Trainer.create(config, dataset), content)
    found = {}
    for name in names:
        if name == "g":
            found[name] = rounds.timed(name, ITEMS, parts.item(maker.items(ITEMS)))
        elif name == "strat-ns":
            batch = next(batches(dataset.graph, config, Streams(0)))
            call = steps.call(trainer, [batch])
            found[name] = rounds.timed("step", len(batch.items), call)
        else:
            for counts in OTHERS:
                call = steps.call(trainer, [maker.batch(counts)])
                found[str(counts)] = rounds.timed("step", counts.items, call)
            for items in (100, 1000):
                call = parts.item(maker.items(items))
                found[f"g of {items}"] = rounds.timed("g", items, call)
            found["optimiser"] = rounds.timed(
                "optimiser", 1, parts.optimiser(maker.batch(OTHERS[0]))
            )
    return found


def main() -> None:
    """Print the seconds of a call of each, as JSON, for each line that comes in."""
    programs = timed(Path(sys.argv[1]), sys.argv[2].split(","))
    print("ready", flush=True)
    for _ in sys.stdin:
        seconds = {}
        for name, program in programs.items():
            ((calls, taken),) = program.block(lambda: False).values()
            seconds[name] = taken / calls
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    rounds.BLOCK_SECONDS = 0.2
    main()
