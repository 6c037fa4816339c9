"""The programs of docs/race.md race: in shell, in PyTorch, and ``ncfbench run``."""

import gzip
import json
import shlex
import sys
from pathlib import Path

import pytest
from support.cli import check, invoke

from ncfbench.racing.metric import Metric

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.long
def test_the_shell_example_races():
    command = f"sh {EXAMPLES}/race_in_shell.sh {{pace}}"
    words = ["race", "--json", "--budget", "6s"]
    done = invoke(*words, "--target", "0.5", "--try", "pace=0.2,2", command)
    check(done, 0)
    assert json.loads(done.stdout)["recommended"] == "pace=0.2"


def test_the_pytorch_example_races():
    pytest.importorskip("torch")
    command = f"{sys.executable} {EXAMPLES}/race_in_pytorch.py {{lr}}"
    words = ["race", "--json", "--budget", "90s"]
    done = invoke(*words, "--target", "0.9", "--try", "lr=1e-5,1e-2", command)
    check(done, 0)
    assert json.loads(done.stdout)["recommended"] == "lr=1e-2"


def test_the_sentence_transformers_example_races(tmp_path):
    """Users like films of their genre, of which those held out are seen by their words alone."""
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("accelerate")
    genres = [f"genre{number}" for number in range(5)]
    rows = [f"{item},{genres[item % 5]} word{item % 40}" for item in range(600)]
    (tmp_path / "items.csv").write_text("\n".join(["item,plot", *rows]))
    links = [f"{user},{item}" for user in range(100) for item in range(user % 5, 600, 5)]
    with gzip.open(tmp_path / "links.csv.gz", "wt") as file:
        file.write("\n".join(["user,item", *links]))
    command = f"{sys.executable} {EXAMPLES}/race_in_sentence_transformers.py {tmp_path} {{loss}}"
    words = ["race", "--json", "--budget", "3m", "--target", "0.9"]
    losses = "MultipleNegativesRankingLoss,CosineSimilarityLoss"
    done = invoke(*words, "--try", f"loss={losses}", command)
    check(done, 0)
    assert json.loads(done.stdout)["recommended"].startswith("loss=")


def test_a_run_prints_lines_that_a_race_reads(data_dir, tmp_path):
    words = ["run", "--dataset", "tiny", "--encoder", "bow", "--sampler", "ns", "--epochs", "2"]
    more = ["--data-dir", data_dir, "--runs-dir", tmp_path, "--batch-size", "64", "--quiet"]
    done = invoke(*words, *more, "--log-metrics")
    check(done, 0)
    found = list(filter(None, map(Metric.of("probe_loss").read, done.stdout.splitlines())))
    assert len(found) > 3
    assert found[0].step == 0
    assert found[-1].value < found[0].value
    recalls = filter(None, map(Metric.of("test_recall_at_50").read, done.stdout.splitlines()))
    assert len(list(recalls)) == 2


@pytest.mark.long
def test_runs_of_this_program_race(data_dir, tmp_path):
    words = (
        f"{sys.executable} -m ncfbench run --dataset tiny --encoder bow --sampler ns --epochs 40"
    )
    words += f" --data-dir {shlex.quote(str(data_dir))} --runs-dir {tmp_path} --log-metrics"
    race = ["race", "--json", "--budget", "60s", "--minimize"]
    rates = ["--try", "rate=1e-6,1e-2", f"{words} --quiet --learning-rate {{rate}}"]
    done = invoke(*race, "--metric", "probe_loss", *rates)
    check(done, 0)
    assert json.loads(done.stdout)["recommended"] == "rate=1e-2"
