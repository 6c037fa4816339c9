"""The answer about a data set, by hand and by a second computation."""

import json
import math
from typing import Any

import numpy as np
import pytest
from independent.records import RECALL, error_of, read_runs, soonest
from support.cli import check, invoke
from support.records import REPOSITORY, change, floor_row, kept, write_run

from ncfbench.reporting.answers import FALLING, caveats, worth
from ncfbench.reporting.render import html
from ncfbench.reporting.results import collect
from ncfbench.reporting.views import answers as views
from ncfbench.reporting.views import sentences
from ncfbench.reporting.views.run import run_table
from ncfbench.runs.folder import read
from ncfbench.runs.quality import CERTAIN
from ncfbench.storage import schemas, tables

SEEDS = (0, 1)
CHANCE = {"test_recall_at_50_chance": 0.3, "test_recall_at_50_error": 0.01}


def write_three(folder, floor=0.35, **more):
    """Two losses, three samplers; 0.4 is the best mean recall, so 0.38 is the level."""
    more.setdefault("errors", (0.003, 0.004))
    for seed in SEEDS:
        off = 0.01 * (1 - 2 * seed)  # of the two seeds, which cancels in the mean
        for loss, sampler, recalls, ms in (
            ("softmax", "ns", [0, 0.2 + off, 0.3 + off, 0.4 + off], 10),
            ("sg", "strat-ns", [0, 0.3 + off, 0.39 + off, 0.399 + off], 5),
            ("sg", "iid", [0, 0.1, 0.2, 0.3], 40),
        ):
            losses = [9, 5, 4, 3]
            write_run(folder, sampler, losses, ms, recalls, loss=loss, seed=seed, **more)
    rows = [floor_row("ridge", floor, 19.0), floor_row("profile", 0.1, 3.5)]
    tables.write_rows(folder / "floors.parquet", rows, schemas.FLOOR)
    return collect(folder, folder)


def test_the_soonest_of_about_the_best_is_recommended(tmp_path):
    """strat-ns is within half a percent of the best, and sooner at 0.38."""
    results = write_three(tmp_path)
    (found,) = results.answers
    assert found.best.config.sampler == "strat-ns"
    assert abs(found.target or 0) == pytest.approx(0.95 * 0.4)
    assert found.best.seconds == pytest.approx((100 + 100 * 8 / 9) * 0.005)
    others = {arm.config.sampler: arm for arm in found.arms}
    assert others["ns"].seconds == pytest.approx(280 * 0.010)
    # Within a seed: 0.38 where the recalls are 0.01 above, and 0.01 below.
    logs = [
        np.log((200 + 100 * (0.8 - sign / 10)) * 0.01 / ((100 + 100 * (8 - sign) / 9) * 0.005))
        for sign in (1, -1)
    ]
    behind = others["ns"].behind
    assert behind.value == pytest.approx(np.exp(np.mean(logs)))
    assert [others[name].status for name in ("ns", "iid")] == ["slower", "slower"]
    assert others["iid"].behind is None
    rows = [(row.choice, row.value, row.arm.config.sampler) for row in worth(found)]
    of_sampler = [("sampler", "ns", "ns"), ("sampler", "iid", "iid")]
    assert rows[:3] == [*of_sampler, ("loss", "softmax", "ns")]
    said = sentences.headline(found)
    assert said.startswith("To train, use --encoder cnn --loss sg --sampler strat-ns ")
    assert (
        "0.38 on test links (chance: 0.001) in 0.944 s (0.95 of the best that was reached)" in said
    )
    # Two seeds that are 0.01 off: sqrt((2 * 0.005**2 + 0.0002) / 2) beside ridge's 0.005.
    assert (
        "The recommended arm is above ridge (+0.049 ± 0.012, after 1 s) and profile (+0.299 ±"
        " 0.012, after 0.5 s)." in said
    )


@pytest.mark.parametrize(
    ("floor", "worth", "word"),
    [(0.5, "not worth it", "below"), (0.4, "not clearly worth it", "level with")],
)
def test_what_no_arm_passes_comes_first(tmp_path, floor, worth, word):
    """One sentence says so, and no other contradicts it. Recall still rises."""
    results = write_three(tmp_path, floor)
    (found,) = results.answers
    assert found.fall > FALLING
    said, apart = results.tables[0].lead, f"{0.399 - floor:+.3f} ± 0.012"
    assert said.startswith(
        f"Training is {worth}: the trained arm has {apart} over ridge, by test links. To train, use"
    )
    assert f", {word} ridge ({apart})." in said


def test_time_counts_features_or_is_of_training(tmp_path):
    """30 s of features and 2.844 s to the level; 3 s of training."""
    (found,) = write_three(tmp_path, feature_seconds=30.0).answers
    table = views.worth_table(found)
    times = dict(zip(table.headings, table.rows[0], strict=True))
    assert times["s to 0.38"].text == "30.9"
    assert times["s of training"].text == "1.5"
    said = sentences.headline(found)
    assert (
        "0.38 on test links (chance: 0.001) in 30.9 s (0.95 of the best that was reached), and"
        " 0.399 within" in said
    )
    assert "within 31.5 s. " in said
    assert ", after 31 s)" in said
    assert said.endswith("Times count the item features: 30 s.")


def test_seeds_that_decide_are_those_whose_recall_is_shown(tmp_path):
    """ns has a second seed that trained for less; it counts in no number of the answer."""
    more: dict[str, Any] = {"errors": (0.003, 0.004)}
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.45], seed=0, **more)
    write_run(tmp_path, "ns", [9, 4], 10, [0, 0.2], seed=1, **more)
    write_run(tmp_path, "ns", [9, 1, 1], 10, [0, 0.35, 0.4], loss="softmax", seed=0, **more)
    tables.write_rows(tmp_path / "floors.parquet", [floor_row("ridge", 0.4, 1.0)], schemas.FLOOR)
    (found,) = collect(tmp_path, tmp_path).answers
    assert (found.best.reported.recall, found.best.reported.values["recall_at_50"]) == (0.45, 0.45)
    assert "Recall@50 of test links: 0.450 ± 0.005 at epoch 2" in sentences.headline(found)
    assert "(+0.050 ± 0.007, after 2 s)" in sentences.headline(found)
    assert "One seed: errors are of users and items alone" in str(caveats(found))
    check(invoke("report", tmp_path), 0)
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


def test_chance_stands_below_the_recalls(tmp_path):
    def judged(rows):
        for row in rows[1:]:
            row["validation_recall_at_50"] = row["test_recall_at_50"]
            row["validation_recall_at_50_chance"] = 0.125

    for loss in ("sg", "softmax"):
        more: dict[str, Any] = {"errors": (0.003, 0.004), "loss": loss}
        change(write_run(tmp_path, "ns", [9, 5, 3], 40, [0, 0.3, 0.4], **more), "curve", judged)
    (found,) = collect(tmp_path, tmp_path).answers
    note = "By chance: validation recall@50 0.125, test recall@50 0.001."
    assert note in views.worth_table(found).notes


def test_without_recall_there_is_no_answer(tmp_path):
    """The table of speedups says who comes down to the baseline's smallest loss soonest."""
    write_run(tmp_path, "iid", [9, 5, 3], 40)
    write_run(tmp_path, "ns", [9, 3, 2], 10)
    assert collect(tmp_path, tmp_path).answers == []
    said = "ns comes down to the smallest loss of iid 8 times sooner (1 seed)"
    check(invoke("report", tmp_path), 0, said)


@pytest.mark.parametrize("name", ["dimension", "batch_size", "word_dropout", "learning_rate"])
def test_arms_that_differ_in_one_number_have_one(tmp_path, name):
    values = {"dimension": 20, "batch_size": 64, "word_dropout": 0.2, "learning_rate": 0.03}
    write_run(tmp_path, "ns", [9, 5, 3], 40, [0, 0.3, 0.3])
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.3, 0.4], **{name: values[name]})
    (found,) = collect(tmp_path, tmp_path).answers
    assert found.best.config.to_dict()[name] == values[name]
    assert [row.choice for row in worth(found)] == [name]


def test_an_arm_has_one_row_for_all_its_choices(tmp_path):
    write_run(tmp_path, "ns", [9, 5, 3], 40, [0, 0.3, 0.3], loss="softmax", dimension=20)
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.3, 0.4])
    (found,) = collect(tmp_path, tmp_path).answers
    table = views.worth_table(found)
    shown = [row[0].text for row in table.rows]
    assert shown == ["the recommended", "loss softmax, dimension 20"]


def test_seeds_that_some_arm_lacks_do_not_decide(tmp_path):
    """The second seed of one arm is far better; the first is the one that both have."""
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3], seed=0)
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.6, 0.9], seed=1)
    write_run(tmp_path, "ns", [9, 1, 1], 10, [0, 0.35, 0.4], loss="softmax", seed=0)
    (found,) = collect(tmp_path, tmp_path).answers
    assert found.best.config.loss == "softmax"
    assert [-arm.level for arm in found.arms] == pytest.approx([0.4, 0.3])
    assert "Decided by seed 0: not all arms have" in str(caveats(found))


def test_arms_without_a_common_seed_are_compared_by_means(tmp_path):
    """0.38 after 10 s and after 20 s: within a factor of 3.0 nothing is known of other seeds."""
    write_run(tmp_path, "ns", [9, 4, 2], 100, [0, 0.38, 0.4], seed=0)
    for seed, ms in ((1, 190), (2, 210)):
        write_run(tmp_path, "strat-ns", [9, 4, 2], ms, [0, 0.38, 0.4], loss="log", seed=seed)
    write_run(tmp_path, "iid", [9, 4, 2], 100, [0, 0.2, 0.3], seed=1)
    (found,) = collect(tmp_path, tmp_path).answers
    arms = {arm.config.sampler: arm for arm in found.arms}
    assert [arms[name].status for name in ("ns", "strat-ns", "iid")] == [
        *("recommended", "tied", "slower")
    ]
    assert arms["strat-ns"].expected == arms["strat-ns"].behind.value == pytest.approx(2.0)
    assert arms["iid"].behind is None, "never there"
    check(invoke("report", tmp_path), 0)
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


def test_nothing_is_tied_with_nothing(tmp_path):
    """No arm is above chance, 0.3: there is nothing that others could be tied with."""
    for loss in ("sg", "softmax"):
        folder = write_run(tmp_path, "ns", [9, 5, 3], 40, [0, 0.3, 0.3], loss=loss)
        change(folder, "curve", lambda rows: [row.update(CHANCE) for row in rows[1:]])
    done = invoke("report", tmp_path, "--json")
    (row,) = json.loads(done.stdout)["answers"]
    assert (row["recommended"], row["tied"]) == (None, [])
    assert {arm["status"] for arm in row["arms"]} == {"undecided"}
    assert row["headline"].startswith("No choice can be justified")
    assert "tied" not in row["headline"].lower()
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


def test_other_machines_and_diverged_arms_stay_out(tmp_path):
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3], time="2026-02-02")
    write_run(tmp_path, "ns", [9, 4, 2], 1, [0, 0.9, 0.9], encoder="bow", key="another")
    write_run(tmp_path, "ns", [9, 1], 1, [0, 0.9], loss="log", status="diverged")
    write_run(tmp_path, "ns", [9, 1, 1], 10, [0, 0.1, 0.25], loss="softmax")
    results = collect(tmp_path, tmp_path)
    (found,) = results.answers
    assert found.best.config.loss == "sg"
    assert [arm.status for arm in found.arms] == ["recommended", "slower", "diverged"]
    assert "1 run of another machine or environment left out." in str(caveats(found))


def test_the_report_begins_with_it(tmp_path, monkeypatch):
    """Details are on demand; JSON has all of it, and the page folds them."""
    write_three(tmp_path)
    printed = invoke("report", tmp_path)
    check(
        printed, 0, "What ranks best soonest: citeulike, recall@50", "To train, use --encoder cnn"
    )
    assert "Quality on" not in printed.stdout
    check(invoke("report", tmp_path, "--full"), 0, "Quality on")
    check(invoke("report", tmp_path / "absent"), 2, "absent is no folder.")
    (row,) = json.loads(invoke("report", tmp_path, "--json").stdout)["answers"]
    assert row["recommended"] == "cnn sg strat-ns"
    assert [floor["best_arm"] for floor in row["floors"]] == ["passes", "passes"]
    monkeypatch.setattr(html, "_drawings", lambda results: [])
    check(invoke("report", tmp_path, "--format", "html"), 0)
    first, _, rest = (tmp_path / "report.html").read_text().partition("<details>")
    assert "What ranks best soonest" in first
    assert "Quality on" not in first
    assert "Quality on" in rest


@pytest.mark.parametrize("folder", ["citeulike-title-tags-rivals", "movielens-plots-rivals"])
def test_a_second_computation_gives_the_same(folder):
    (found,) = kept(folder).answer_rows
    runs = read_runs(REPOSITORY / "results" / folder)
    arms = [[runs[name] for name in arm["runs"]] for arm in found["arms"]]
    level, results = soonest(arms)
    assert -found["level"] == pytest.approx(level, rel=1e-9)
    for arm, own, (recall, _, seconds) in zip(found["arms"], arms, results, strict=True):
        names = ("seconds_to_level", "level", "test_recall_at_50")
        written = [math.nan if arm[name] is None else arm[name] for name in names]
        test = math.fsum(run.chosen[RECALL] for run in own) / len(own)
        expected = [seconds, -recall, test]
        assert written == pytest.approx(expected, rel=1e-9, nan_ok=True)
        error = error_of([run.chosen for run in own])
        assert arm["test_recall_at_50_error"] == pytest.approx(error, rel=1e-9)
    near = [
        (seconds, at)
        for at, (recall, _, seconds) in enumerate(results)
        if recall >= 0.995 / 0.95 * level
    ]
    assert found["arms"][min(near)[1]]["status"] == "recommended"


def test_an_arm_has_one_recall_of_one_epoch(tmp_path):
    """Validation chose 0.42 at epoch 2 of ns; it ends at 0.4, and ridge is between. Seeds may
    report other epochs: 2 and 3 of iid are 2.5 in the mean. All tables and sentences say so.
    """
    errors = (0.001, 0.001)
    tables.write_rows(tmp_path / "floors.parquet", [floor_row("ridge", 0.405, 1.0)], schemas.FLOOR)
    for seed in range(2):
        more: dict[str, Any] = {"seed": seed, "errors": errors}
        rises = [0, 0.1, 0.2 + seed / 10, 0.25]
        recalls = [0, 0.3, 0.3, 0.32]
        write_run(tmp_path, "iid", [9, 5, 4, 3], 200, recalls, validation=rises, **more)
        own = [0, 0.3, 0.42, 0.4]
        write_run(tmp_path, "ns", [9, 5, 2, 1], 20, own, validation=[0, 0.1, 0.3, 0.2], **more)
    (found,) = json.loads(invoke("report", tmp_path, "--json").stdout)["answers"]
    results = collect(tmp_path, tmp_path)
    (answer,) = results.answers
    arms = {arm.config.sampler: arm for arm in answer.arms}
    assert [arms[name].reported.recall for name in ("ns", "iid")] == pytest.approx([0.42, 0.31])
    assert [arms[name].epoch for name in ("ns", "iid")] == [2, 2.5]
    (floor,) = found["floors"]
    assert (floor["best_arm"], floor["above_by"]) == ("passes", pytest.approx(0.42 - 0.405))
    assert "Recall@50 of test links: 0.420 ± 0.001 at epoch 2" in found["headline"]
    table = views.answer_tables([answer], {})[0]
    shown = [[cell.text for cell in row[-2:]] for row in table.rows]
    assert shown[:2] == [["0.420 ± 0.001", "2"], ["0.310 ± 0.010", "2.5"]]
    assert any(note.startswith("recall@50: of test links") for note in table.notes)
    recall = {row["sampler"]: row for row in results.recall}
    assert recall["ns"]["test_recall_at_50"] == pytest.approx(0.42)
    assert recall["iid"]["reported_epoch"] == 2.5
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


def test_one_arm_is_no_choice(tmp_path):
    """After a first run the report says what to do for a choice."""
    write_run(tmp_path, "iid", [9, 5, 3], 10, [0, 0.2, 0.3], dimension=20)
    (answer,) = collect(tmp_path, tmp_path).answers
    assert dict(caveats(answer))["few_arms"] == "No other arm was tried."
    (table,) = views.answer_tables([answer], {"--runs-dir": "my runs"})
    assert table.notes[-1] == "ncfbench advise citeulike --runs-dir 'my runs'"
    printed = invoke("report", tmp_path).stdout
    assert printed.startswith("What ranks best soonest: citeulike")
    assert "0.300" in printed


def test_longer_runs_replace_shorter_ones_of_an_arm(tmp_path):
    for epochs, recalls in ((2, [0, 0.2, 0.5]), (3, [0, 0.2, 0.3, 0.35])):
        write_run(tmp_path, "iid", [9, 5, 4, 3][: epochs + 1], 100, recalls, epochs=epochs)
    write_run(tmp_path, "ns", [9, 5, 4, 3], 10, [0, 0.2, 0.3, 0.4], epochs=3)
    (answer,) = collect(tmp_path, tmp_path).answers
    assert [(arm.name, -arm.level) for arm in answer.arms] == [
        *(("cnn sg ns", 0.4), ("cnn sg iid", 0.35))
    ]
    reason = "1 run left out: a longer one has its arm and seed."
    assert ("note", reason) in answer.reasons


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("patience", (3, 10)),
        ("probe_every", (0, 50)),
        ("item_block", (0, 64)),
    ],
)
def test_arms_differ_in_any_setting(tmp_path, setting, values):
    """Runs of one seed that differ in a setting alone are two arms."""
    for value in values:
        for sampler, ms in (("iid", 100), ("ns", 10)):
            write_run(tmp_path, sampler, [9, 5, 3], ms, [0, 0.2, 0.3], **{setting: value})
    (answer,) = collect(tmp_path, tmp_path).answers
    found = {(each.config.sampler, getattr(each.config, setting)) for each in answer.arms}
    assert found == {(sampler, value) for sampler in ("iid", "ns") for value in values}


def add_recall(run, **ends):
    """Add to the last test recall@50 of a run, for example its error."""
    added = {f"test_recall_at_50_{end}": value for end, value in ends.items()}
    for table in ("curve", "summary"):
        change(run, table, lambda rows: rows[-1].update(added))


def test_a_certain_recall_is_marked_where_it_stands(tmp_path):
    """With as many test items as M or fewer, recall@M is 1 whatever was learned."""
    for sampler in ("iid", "ns"):
        run = write_run(tmp_path, sampler, [9, 5, 3], 10, [0, 1.0, 1.0])
        add_recall(run, chance=1.0)
    text = " ".join(invoke("report", tmp_path).stdout.lower().split())
    assert text.count("recall@50 is 1 by construction") == 2  # of the answer, and of recalls
    summary = {**read(run).summary, "train_seconds": 1.0}
    assert CERTAIN in [row[1].text for row in run_table(summary, []).rows]


def test_one_meaning_of_plus_minus(tmp_path):
    """Errors of 0.03 over users and 0.04 over items in each seed; recalls of 0.3 and 0.5, whose
    variance is 0.02: sqrt(0.0009 + 0.0016 + 0.02 / 2) = 0.1118.
    """
    for sampler in ("iid", "ns"):
        for seed, recall in enumerate((0.3, 0.5)):
            run = write_run(tmp_path, sampler, [9, 5, 3], 10, [0, 0.2, recall], seed=seed)
            add_recall(run, error=0.03, item_error=0.04, chance=0.1)
    text = invoke("report", tmp_path, "--full").stdout
    assert text.count("0.400 ± 0.112") == 6  # the block, the paragraph, two arms, their quality
    assert text.count("0.4000 ± 0.1118 (2)") == 2
    flat = " ".join(text.split())
    assert flat.count("±: standard error over users and items, and over seeds") == 3
