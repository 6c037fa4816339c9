"""Races of commands, and programs that print lines."""

import json
import time
from typing import Any

from invoked import check, invoke

COUNT = "n=0; while [ $n -lt {count} ]; do n=$((n+1)); echo v=$n; sleep 0.01; done"
ENDLESS = "n=0; while :; do n=$((n+1)); echo v=$n; sleep 0.0{pace}; done"
V = ("--metric", "v=([0-9.]+)")
LIMIT_SECONDS = 30


def race(*words, code=0):
    """Race, and return the answer."""
    done = invoke("race", "--json", "--quiet", *words)
    check(done, code)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def by_name(found):
    return {arm["arm"]: arm for arm in found["arms"]}


def wait(condition):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.002)
