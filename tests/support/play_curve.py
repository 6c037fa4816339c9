"""Play a recorded curve: print its values when they are due, as a program that trains would.

    python tests/support/play_curve.py FILE NAME

FILE holds curves in JSON: {NAME: [[seconds, value], ...]}. The clock stands still while the program
is paused: steps of it are counted, and one that took longer is cut.
"""

import json
import sys
import time
from pathlib import Path

TICK = 0.002
LONGEST = 5 * TICK

file, name = sys.argv[1:]
clock, last = 0.0, time.perf_counter()
for step, (at, value) in enumerate(json.loads(Path(file).read_text("utf-8"))[name], 1):
    while clock < at:
        time.sleep(min(TICK, at - clock))
        now = time.perf_counter()
        clock, last = clock + min(now - last, LONGEST), now
    print(json.dumps({"value": value, "step": step}), flush=True)
