"""Play a recorded curve: print its values when they are due, as a program that trains would.

    python tests/play_curve.py FILE NAME [SPEED [STARTUP]]

FILE holds curves in JSON: {NAME: [[seconds, value], ...]}, as ``curves`` in the answer of
``ncfbench race``. SPEED times as fast as it was recorded, after STARTUP seconds. The clock stands
still while the program is paused: steps of it are counted, and one that took longer is cut.
"""

import json
import sys
import time
from pathlib import Path

TICK = 0.002
LONGEST = 5 * TICK


def play(points: list[tuple[float, float]], speed: float, startup: float) -> None:
    """Print a line for each point."""
    clock, last = 0.0, time.perf_counter()
    for step, (at, value) in enumerate(points, 1):
        while clock < startup + at / speed:
            time.sleep(min(TICK, max(startup + at / speed - clock, 0.0)))
            now = time.perf_counter()
            clock, last = clock + min(now - last, LONGEST), now
        print(json.dumps({"value": value, "step": step}), flush=True)


def main(file: str, name: str, speed: str = "1", startup: str = "0") -> None:
    play(json.loads(Path(file).read_text("utf-8"))[name], float(speed), float(startup))


if __name__ == "__main__":
    main(*sys.argv[1:])
