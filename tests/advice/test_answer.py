"""Answers from records that literals make: words, tables, commands."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from folders import floor_row
from race_records import FIXED, answered, entrant, written

from ncfbench.advice import answer_rows, summary
from ncfbench.advice.answer import RaceAnswer
from ncfbench.advice.candidates import LeftOut
from ncfbench.advice.question import Question
from ncfbench.cli.output import json_text
from ncfbench.data.store import Dataset
from ncfbench.reporting.figures.curves import draw_answer
from ncfbench.reporting.figures.drawing import save
from ncfbench.reporting.floors import floors_of
from ncfbench.reporting.quality import Quality
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.table import Col
from ncfbench.reporting.views import answers as views
from ncfbench.storage import schemas, tables


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory, tiny: Dataset) -> RaceAnswer:
    """The best passes the baseline's last level, 5, after 100 of its 400 iterations."""
    tmp_path = tmp_path_factory.mktemp("answer")
    best = entrant("strat-ns b=512 s=4 lr=0.02", "strat-ns", learning_rate=0.02)
    tied = entrant("ns b=512 lr=0.01", "ns")
    base = entrant("iid b=512 k=10 lr=0.01", "iid")
    gone = entrant(
        "ns b=512 lr=0.03", "ns", "after 2 s: place 4 of 4, and no time for all", learning_rate=0.03
    )
    bad = entrant("ns b=512 lr=9", "ns", "diverged: the loss is not finite", learning_rate=9.0)
    records = {
        best.name: written(tmp_path, best, [9, 5, 3, 2, 1], 10, [0, 0.1, 0.2, 0.3, 0.4]),
        tied.name: written(tmp_path, tied, [9, 6, 4, 3, 2, 1], 9, [0, 0.1, 0.2, 0.3, 0.4, 0.41]),
        base.name: written(tmp_path, base, [9, 8, 7, 6, 5], 40, [0, 0.1, 0.15, 0.2, 0.25]),
        gone.name: written(tmp_path, gone, [9, 7, 6], 10, [0, 0.1, 0.11]),
        bad.name: [],
    }
    left_out = [LeftOut("neg b=512 k=10", "50 us for a link")]
    more = {"left_out": left_out, "clock": 4.0, "horizon": 4.0, "spent_seconds": 60.0}
    return answered(tiny, [base, best, tied, gone, bad], records, is_over=True, **more)


def test_an_answer_names_the_best_its_ties_and_the_ratio(answer: RaceAnswer) -> None:
    assert answer.best is not None
    assert answer.best.name == "strat-ns b=512 s=4 lr=0.02"
    assert [each.name for each in answer.ties] == ["ns b=512 lr=0.01"]
    assert answer.baseline is not None
    assert answer.baseline.status == "slower"
    assert answer.target == 5.0
    assert answer.sooner is not None
    # 400 iterations of 40 ms over 100 of 10 ms, times the block that is the median.
    assert answer.sooner.value == pytest.approx(16, rel=0.01)
    assert answer.sooner.seeds == 2
    assert {
        each.name: each.status
        for each in answer.arms
        if each.status not in ("recommended", "tied", "slower")
    } == {"ns b=512 lr=0.03": "left", "ns b=512 lr=9": "diverged"}


@pytest.mark.parametrize(
    ("floor", "begins"),
    [
        (
            0.0,
            "Do not train, on this budget: TF-IDF profiles have more without. If you train, use --",
        ),
        (
            0.567,
            "Do not train, on this budget: ridge regression has more without. If you train, use --",
        ),
        (0.41, "No candidate is clearly above ridge regression, which needs no training. If you"),
        (0.2, "Use --encoder cnn --loss"),
    ],
)
def test_what_no_candidate_passes_comes_first(
    answer: RaceAnswer, floor: float, begins: str
) -> None:
    """In an answer about ranking: the largest recall of all is 0.41."""
    question = Question({"dataset": "tiny"})
    profile = 0.1 if floor else 0.567
    floors = floors_of([floor_row("profile", profile, 3.5), floor_row("ridge", floor, 19.0)])
    beside = dataclasses.replace(answer, question=question, target=-0.38, floors=floors)
    assert summary.headline(beside).startswith(begins)


def test_floors_stand_below_the_arms_of_a_race(answer: RaceAnswer) -> None:
    """In the table, the paragraph and JSON; with no best arm, too."""
    floors = floors_of([floor_row("profile", 0.35, 3.5), floor_row("ridge", 0.567, 19.0)])
    beside = dataclasses.replace(answer, floors=floors, unfitted=["No ease: it would take 9 h."])
    assert summary.headline(beside).endswith(
        "TF-IDF profiles reach 0.350 in 3.5 s without training; this arm passes them after 4 s. No"
        " arm passes ridge regression (0.567 in 19 s) yet: train longer, or only for what it"
        " cannot do."
    )
    shown = [[cell.text for cell in row] for row in summary.standings_table(beside).rows]
    last = ["TF-IDF profiles", "-", "-", "-", "3.5", "no training", "0.350 ± 0.005"]
    assert shown[-1] == last
    document = json.loads(json_text(answer_rows.as_json(beside, Path("runs"), {})))
    assert [floor["best_arm"] for floor in document["floors"]] == ["below", "passes"]
    assert document["floors"][1]["passed_after_seconds"] == pytest.approx(4)
    assert "Floors that were left out: No ease: it would take 9 h." in document["trust"]
    none = dataclasses.replace(
        beside, arms=[dataclasses.replace(arm, status="slower") for arm in beside.arms], target=None
    )
    table = summary.standings_table(none)
    assert [column.heading for column in table.header][-3:] == ["s", "loss", "recall@50"]
    assert table.rows[-1][-2].text == "no training"
    assert "ns b=512 lr=0.01 passes them" in summary.headline(none)


def test_seconds_of_item_features_come_before_training(answer: RaceAnswer) -> None:
    arms = [
        dataclasses.replace(
            arm,
            runs={
                seed: dataclasses.replace(run, feature_seconds=3.0)
                for seed, run in arm.runs.items()
            },
        )
        for arm in answer.arms
    ]
    floors = floors_of([floor_row("profile", 0.35, 3.5)])
    (baseline,) = (arm for arm in arms if arm.config.sampler == "iid")
    waited = dataclasses.replace(answer, arms=arms, baseline=baseline, floors=floors)
    found = summary.headline(waited)
    assert "It reaches a loss of 5 in 1 s of training; the best baseline, iid b=512" in found
    assert "this arm passes them after 7 s." in found
    assert found.endswith(
        "The item features took 3 s before training: times to pass a floor, and s in the table,"
        " count them."
    )
    shown = summary.standings_table(waited).rows
    assert shown[0][4].text == "4"
    document = json.loads(json_text(answer_rows.as_json(waited, Path("runs"), {})))
    assert document["feature_seconds"] == 3.0
    assert document["floors"][0]["passed_after_seconds"] == pytest.approx(7)


def test_the_headline_says_what_to_use_and_why(answer: RaceAnswer) -> None:
    found = summary.headline(answer)
    assert found.startswith(
        "Use --loss sg --sampler strat-ns --batch-size 512 --stratum-size 4 --learning-rate 0.02."
    )
    assert "It reaches a loss of 5 in 1 s; the best baseline, iid b=512" in found
    assert "takes 16 s: 16 times as long (95 %: " in found
    assert "an iteration takes 10 ms instead of 40, and 100 iterations do instead of 400" in found
    assert "0.400 at epoch 4, the baseline's 0.250 at epoch 4" in found
    assert "Not to be told from it: ns b=512 lr=0.01." in found


def test_trust_names_what_speaks_against_it(answer: RaceAnswer) -> None:
    found = " ".join(caveat.sentence for caveat in summary.caveats(answer))
    assert "2 seeds of each of 3 finalists" in found
    assert "its loss fell by 67% in the latter half" in found  # from 3 at 2 s to 1 at 4 s
    assert "no time" not in found
    assert "higher recall" not in found, "no errors, no differences"


def test_trust_names_a_rival_with_better_recall(answer: RaceAnswer) -> None:
    """Only entrants that stayed to the end count, and only if their recall is better by more than
    two standard errors of the difference: 0.05 is less than 2 * 0.02 * sqrt(2).
    """
    for recall, is_better in ((0.36, True), (0.35, False)):
        recalls = {"iid b=512 k=10 lr=0.01": recall, "ns b=512 lr=0.03": 0.5}
        arms = []
        for arm in answer.arms:
            values = {"recall_at_50": recalls.get(arm.name, 0.3), "recall_at_50_error": 0.02}
            quality = [Quality(("end",), 4.0, values)]
            arms.append(dataclasses.replace(arm, quality=quality))
        found = dict(summary.caveats(dataclasses.replace(answer, arms=arms)))
        text = "iid b=512 k=10 lr=0.01 ends with a higher recall@50, 0.360 ± 0.020"
        expected = f"{text}: --target recall decides by recall." if is_better else None
        assert found.get("better_recall") == expected


def test_a_column_of_the_answer_is_declared_once(
    answer: RaceAnswer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of a race has the columns of a report's answer."""
    more = [*views.COLUMNS, Col("seeds", lambda arm: len(arm.runs))]
    monkeypatch.setattr(views, "COLUMNS", more)
    table = summary.standings_table(answer)
    assert table.header[-1].heading == "seeds"
    assert [row[-1].text for row in table.rows] == ["2", "2", "2"]


def test_the_table_fits_eighty_columns(answer: RaceAnswer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    console = make_console()
    with console.capture() as captured:
        show(console, summary.standings_table(answer))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line for line in lines if "b=512" in line]
    assert [line.split()[0] for line in rows] == ["strat-ns", "ns", "iid"]
    assert rows[0].split()[-6:] == ["102", "10", "100", "1", "1", "0.400"]


def test_rows_and_json_are_what_the_schema_says(answer: RaceAnswer, tmp_path: Path) -> None:
    path = tmp_path / "advice.parquet"
    tables.write_rows(path, answer_rows.rows(answer), schemas.ADVICE)
    rows = tables.read_rows(path, schemas.ADVICE)
    assert [row["status"] for row in rows] == [
        "recommended",
        "tied",
        "left",
        "slower",
        "diverged",
    ]
    assert set(schemas.ADVICE.names) == set(answer_rows.rows(answer)[0])
    assert rows[0]["times_slower"] is None
    assert rows[3]["times_slower"] == pytest.approx(16, rel=0.01)
    assert rows[2]["times_slower_expected"] == 1  # it left, and all efforts are alike
    for each in (rows[1], rows[3]):
        assert each["times_slower_expected"] == each["times_slower"]
    found = json.loads(json_text(answer_rows.as_json(answer, tmp_path, {})))
    assert found["recommended"] == "strat-ns b=512 s=4 lr=0.02"
    assert found["tied"] == ["ns b=512 lr=0.01"]
    assert found["left_out"] == [{"what": "neg b=512 k=10", "reason": "50 us for a link"}]
    assert found["entrants"][0]["level"] == 1.0


def test_next_commands_repeat_what_was_asked(answer: RaceAnswer, tmp_path: Path) -> None:
    steps = summary.next_steps(answer, tmp_path / "x", {"--data-dir": "here"})
    (_, again), (_, export), (_, resume) = steps
    assert again == "ncfbench advise tiny --target loss --budget 2m --data-dir here"
    assert resume == (
        "ncfbench run --dataset tiny --sampler strat-ns --encoder cnn --loss sg"
        f" --learning-rate 0.02 --data-dir here --runs-dir {tmp_path / 'x'} --resume"
    )
    assert answer.best is not None
    folder = tmp_path / "x" / answer.best.first.name
    assert export == f"ncfbench export {folder} --vectors vectors --data-dir here"


def test_a_command_names_all_that_was_asked() -> None:
    question = Question(
        FIXED | {"dimension": 8},
        target="recall",
        losses=("sg", "mse"),
        samplers=("ns", "iid"),
        learning_rates=(0.01, 0.1),
        seeds=3,
    )
    assert summary.advise_command(question, 600.0, {}) == (
        "ncfbench advise tiny --encoder cnn --loss sg,mse --samplers ns,iid"
        " --learning-rates 0.01,0.1 --seeds 3 --set dimension=8 --budget 10m"
    )


def test_the_figure_is_drawn(answer: RaceAnswer, tmp_path: Path) -> None:
    drawing = draw_answer(answer)
    assert drawing is not None
    (path,) = save(drawing, [tmp_path / "advice.png"])
    assert path.stat().st_size > 10_000
