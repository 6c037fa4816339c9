"""Seconds and memory of what a user runs, and their growth with users, items and links.

    python benchmarks/bench_scale.py                           # to 100,000 users: minutes
    python benchmarks/bench_scale.py --sizes 1000000,100000,10000000 --folder DIR    # hours

Five data sets: a tenth of the sizes; of these ten times the users, the items or the links; and all.
Texts have 20 to 40 words of 20,000. Each command has a process of its own, whose wall seconds,
processor seconds and largest resident memory DIR/rows.jsonl keeps; what it holds is not repeated.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ncfbench.data.sources.synthetic import Options
from ncfbench.data.sources.synthetic import make as make_content

GROWN = {"a tenth": "", "users": "u", "items": "i", "links": "l", "all": "uil"}
TEXTS = {"topics": 100, "vocabulary_size": 20_000, "min_words": 20, "max_length": 40}
COMMANDS = {
    "prepare": "prepare custom --links links.parquet --items items.parquet",
    "floor": "floor custom --floors profile,ridge",
    "run and blend": "run --dataset custom --preset good --epochs 2 --quiet",
    "export run": "export RUN of-run --top 50",
    "export floor": "export custom of-floor --floor ridge --top 50",
    "export blend": "export RUN of-both --floor ridge --top 50",
}


def make(folder: Path, sizes: dict[str, int]) -> None:
    """Write the files of links and items."""
    folder.mkdir(parents=True)
    options: dict[str, Any] = sizes | TEXTS
    content = make_content(Options(**options))
    links = pa.table({"user": content.users, "item": content.items})
    pq.write_table(links, folder / "links.parquet")
    words = np.array(["", *content.vocabulary])
    texts = [" ".join(words[content.texts[item]]) for item in range(sizes["items"])]
    pq.write_table(pa.table({"item": range(len(texts)), "text": texts}), folder / "items.parquet")


def measure(folder: Path, command: str) -> dict[str, float]:
    """Run a command of ncfbench in a folder; return what it took."""
    run = next((path.name for path in folder.glob("runs/custom-*")), "")
    words = [sys.executable, "-m", "ncfbench", *command.replace("RUN", run).split()]
    begin = time.perf_counter()
    with (folder / "log").open("a") as log:
        child = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    for exported in folder.glob("of-*"):
        shutil.rmtree(exported)
    seconds, processor = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
    figures = {"seconds": seconds, "processor": processor, "gib": usage.ru_maxrss / 2**20}
    return {"code": child.returncode} | {name: round(figures[name], 2) for name in figures}


def rows(sizes: dict[str, int], folder: Path) -> list[dict[str, Any]]:
    """Return a row for each size and command, measured unless the folder keeps it; print each."""
    kept = folder / "rows.jsonl"
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    for grown, letters in GROWN.items():
        of = {name: sizes[name] // (1 if name[0] in letters else 10) for name in sizes}
        for name, command in COMMANDS.items():
            named = {"grown": grown, "command": name, **of}
            if not any(named.items() <= row.items() for row in done):
                if not (folder / grown).exists():
                    make(folder / grown, of)
                done.append(named | measure(folder / grown, command))
                kept.write_text("".join(json.dumps(row) + "\n" for row in done))
                print(json.dumps(done[-1]), flush=True)
    return done


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--sizes", default="100000,10000,1000000", help="users,items,links")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    numbers = dict(
        zip(("users", "items", "links"), map(int, options.sizes.split(",")), strict=True)
    )
    with tempfile.TemporaryDirectory() as temporary:
        measured = rows(numbers, options.folder or Path(temporary))
    for command in COMMANDS:
        cells = [
            f"{row['seconds']:,.1f} s {row['processor']:,.1f} s {row['gib']:.2f} GiB"
            for row in measured
            if row["command"] == command
        ]
        print(f"| {command} | {' | '.join(cells)} |")
