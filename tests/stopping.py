"""Progress that interrupts its own process."""

from __future__ import annotations

import os
import signal

from ncfbench.runs.progress import Progress


class StopAt(Progress):
    """Sends this process an interrupt after some iteration."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def advance(self, iteration: int, item_slots: float) -> None:
        if iteration == self.iteration:
            os.kill(os.getpid(), signal.SIGINT)
