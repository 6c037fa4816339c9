"""The programs of docs/race.md race: in shell, in PyTorch, and ``ncfbench run``."""

import gzip
import json
import sys
from pathlib import Path

import pytest
from support.cli import check, invoke

from ncfbench.racing.metric import Metric

EXAMPLES = Path(__file__).parents[2] / "examples"


SHELL = "sh {}/race_in_shell.sh {{pace}}", "6s --target 0.5 --try pace=0.2,2", "pace=0.2"
TORCH = (
    f"{sys.executable} {{}}/race_in_pytorch.py {{{{lr}}}}",
    *("90s --target 0.9 --try lr=1e-5,1e-2", "lr=1e-2"),
)


@pytest.mark.parametrize(
    ("package", "case"), [(None, SHELL), ("torch", TORCH)], ids=["shell", "pytorch"]
)
@pytest.mark.long_cases("shell")
def test_an_example_races(package, case):
    if package:
        pytest.importorskip(package)
    program, words, best = case
    race_to(best, program.format(EXAMPLES), *words.split())


def race_to(best, command, *words):
    done = invoke("race", "--json", command, "--budget", *words)
    check(done, 0)
    assert json.loads(done.stdout)["recommended"].startswith(best)


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
    losses = "loss=MultipleNegativesRankingLoss,CosineSimilarityLoss"
    race_to("loss=", command, "3m", "--target", "0.9", "--try", losses)


def test_a_run_prints_lines_that_a_race_reads(data_dir, tmp_path):
    words = "run --dataset tiny --encoder bow --sampler ns --quiet --log-metrics --epochs 2"
    more = "--batch-size 64 --set dimension=8 --set word_dimension=8"
    where = ["--data-dir", data_dir, "--runs-dir", tmp_path]
    done = invoke(*words.split(), *more.split(), *where)
    check(done, 0)
    losses, recalls = (
        [*filter(None, map(Metric.of(name).read, done.stdout.splitlines()))]
        for name in ("probe_loss", "test_recall_at_50")
    )
    assert (losses[0].step, len(losses) > 3, len(recalls)) == (0, True, 2)
    assert losses[-1].value < losses[0].value
