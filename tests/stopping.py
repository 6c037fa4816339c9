"""Progress that interrupts its own process."""

import os
import signal

from ncfbench.runs.progress import Progress


class StopAt(Progress):
    """Sends this process an interrupt after some iteration."""

    def __init__(self, iteration):
        self.iteration = iteration

    def advance(self, iteration, item_slots):
        if iteration == self.iteration:
            os.kill(os.getpid(), signal.SIGINT)
