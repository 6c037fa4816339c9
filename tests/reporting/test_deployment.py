"""What is deployed: an arm, a floor or both; floors beside the data, and seconds of features."""

import itertools
import shutil
from types import SimpleNamespace

import pytest
from support.cli import check, invoke
from support.records import blend_row, floor_row, write_run

from ncfbench.blending import blend
from ncfbench.floors.kept import FILE
from ncfbench.reporting.floors import find_floors
from ncfbench.reporting.results import collect
from ncfbench.reporting.views import sentences
from ncfbench.reporting.views.answers import answer_tables
from ncfbench.reporting.views.run import run_table
from ncfbench.runs.folder import read, read_all
from ncfbench.storage import schemas, tables

ERRORS = (0.003, 0.004)


def keep_floors(folder, *rows):
    tables.write_rows(folder / FILE, list(rows), schemas.FLOOR)


def answer_of(folder):
    """The only answer as JSON prints it."""
    (row,) = collect(folder, folder).answer_rows
    return row


@pytest.mark.parametrize(
    ("validation", "what"), [(None, None), (0.2, "floor"), (0.301, "floor"), (0.6, "trained")]
)
def test_what_is_deployed_is_chosen_by_validation(tmp_path, validation, what):
    """Without validation links nothing is recommended, whatever the test links say. Within half a
    percent of the best the simpler one is.
    """
    of_run = {} if validation is None else {"validation": [0, validation, validation]}
    folder = write_run(tmp_path, "ns", [9, 5, 3], 20, [0, 0.4, 0.53], errors=ERRORS, **of_run)
    keep_floors(tmp_path, floor_row("ridge", 0.9, 1.0, validation_recall_at_50=0.3))
    deploy = answer_of(tmp_path)["deploy"]
    assert (deploy and deploy["what"]) == what
    if what == "trained":
        assert deploy["command"].startswith(f"ncfbench export {folder} vectors --top 50  # once")
    if what == "floor":
        assert deploy["command"] == "ncfbench export citeulike vectors --floor ridge --top 50"


@pytest.mark.parametrize("has_floor", [False, True])
def test_no_arm_that_learned_nothing_is_deployed(tmp_path, has_floor):
    """No arm is above chance, 0.3: nor is there anything that others could be tied with."""

    def by_chance(rows):
        for row, split in itertools.product(rows, ("validation", "test")):
            row |= {f"{split}_recall_at_50_chance": 0.3, f"{split}_recall_at_50_error": 0.01}

    more = {"validation": [0, 0.3, 0.3], "edit": by_chance}
    for loss in ("sg", "softmax"):
        write_run(tmp_path, "ns", [9, 5, 3], 20, [0, 0.3, 0.3], loss=loss, **more)
    if has_floor:
        keep_floors(tmp_path, floor_row("ridge", 0.2, 1.0, validation_recall_at_50=0.2))
    answer = answer_of(tmp_path)
    assert (answer["recommended"], answer["tied"]) == (None, [])
    assert {arm["status"] for arm in answer["arms"]} == {"undecided"}
    assert (answer["deploy"] and answer["deploy"]["what"]) == ("floor" if has_floor else None)
    assert (answer["headline"] == sentences.NO_CHOICE) == (not has_floor)
    check(invoke("report", tmp_path), 0)
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


def test_the_deployed_run_is_of_a_seed_that_decides(tmp_path):
    """Seed 1 of it ranks validation links better, and the figures beside it are not its own."""
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.3], validation=[0, 0.3])
    more = {"loss": "softmax", "validation": [0, 0.4]}
    decides = write_run(tmp_path, "ns", [9, 1], 10, [0, 0.4], **more)
    more["validation"] = [0, 0.9]
    write_run(tmp_path, "ns", [9, 1], 10, [0, 0.9], seed=1, **more)
    deploy = answer_of(tmp_path)["deploy"]
    assert decides.name in deploy["command"]
    assert deploy["recall"] == 0.4


def test_few_of_many_ties_are_named():
    ties = [SimpleNamespace(name=name) for name in "abcde"]
    assert sentences.tied_sentence(ties) == "Tied with the trained arm: a, b, c, 2 more."
    assert sentences.tied_sentence(ties[:3]) == "Tied with the trained arm: a, b, c."
    assert sentences.tied_sentence([]) == ""


# --- floors and blends beside an arm


def test_floors_of_another_machine_are_a_caveat(tmp_path):
    """Known where the runs' environments say on which one they were trained."""
    runs = [
        write_run(tmp_path, sampler, [9, 5, 3], 20, [0, 0.4, recall], errors=ERRORS)
        for sampler, recall in (("ns", 0.53), ("iid", 0.35))
    ]
    keep_floors(tmp_path, floor_row("profile", 0.512, 3.5))
    codes = []
    for host in (None, "one", "two"):  # the floors are of `one`
        for path in (run / "environment.json" for run in runs):
            environment = tables.read_json(path) | ({} if host is None else {"host_key": host})
            tables.write_json(path, environment)
        caveats = answer_of(tmp_path)["caveats"]
        codes.append("other_machine" in {caveat["code"] for caveat in caveats})
    assert codes == [False, False, True]


def test_floors_are_read_beside_the_data(tmp_path, data_dir, tiny):
    """Kept beside the data they are in the report; before, it says how to fit them. An export has
    its own, though those of the same data may be another machine's.
    """
    data, runs, copy = (tmp_path / name for name in ("tiny", "runs", "copy"))
    without = shutil.ignore_patterns(FILE)  # other tests may have fitted some
    shutil.copytree(data_dir / "tiny", data, ignore=without)
    more = {"dataset": "tiny", "fingerprint": tiny.fingerprint, "errors": ERRORS}
    write_run(runs, "ns", [9, 3, 2], 20, [0, 0.4], **more)
    words = ("report", runs, "--data-dir")
    command = f"without training: ncfbench floor tiny --data-dir {tmp_path}"
    check(invoke(*words, tmp_path), 0, command)
    assert "ncfbench floor" not in invoke(*words, tmp_path / "no").stdout
    row = floor_row("profile", 0.3, 1.0, data_fingerprint=tiny.fingerprint)
    for folder in (data, runs):
        keep_floors(folder, row)
    printed = invoke(*words, tmp_path, "--export", copy)
    check(printed, 0, "no training: profile")
    assert "ncfbench floor" not in printed.stdout
    keep_floors(data, row | {"test_recall_at_50": 0.4})
    for folder, recall in ((runs, 0.4), (copy, 0.3)):
        floors, _ = find_floors(read_all(folder)[0], folder, tmp_path)
        assert floors[tiny.fingerprint][0].row["test_recall_at_50"] == recall
    # Where those beside the data are damaged those beside the runs are left.
    for damaged, names in ((data, ["TF-IDF profiles"]), (runs, [])):
        (damaged / FILE).write_bytes(b"no table")
        floors, problems = find_floors(read_all(runs)[0], runs, tmp_path)
        assert [floor.name for floor in floors[tiny.fingerprint]] == names
        assert problems
        assert all(FILE in problem for problem in problems)


@pytest.mark.parametrize(
    ("recall", "apart", "word"), [(0.7, 0.04, "passes"), (0.55, 0.14, "level")]
)
def test_a_blend_decides_whether_training_is_worth_it(tmp_path, recall, apart, word):
    """The blend's users are as far apart as the floor's, or farther; the run alone is below."""
    run = write_run(tmp_path, "ns", [9, 5, 3], 20, [0, 0.4, 0.53], errors=ERRORS)
    blend.write(run, [blend_row(recall, apart)])
    of_users = {"test_user_recalls": [0.5, 0.58], "test_item_shares": [0.54 / 400] * 400}
    keep_floors(tmp_path, floor_row("ridge", 0.54, 1.0, **of_users))
    (answer,) = collect(tmp_path, tmp_path).answers
    verdict = f"{sentences.WORTH[word]}: both together have {recall - 0.54:+.3f} ± "
    assert sentences.worth_sentence(answer).startswith(verdict)
    assert f"of ridge), {recall:.3f}, are " in sentences.floors_sentence(answer)
    # As where floors are older than a rule of who counts: nothing is said of a difference.
    of_others = {"test_user_recalls": [0.5] * 3, "test_item_shares": [0.25] * 2}
    keep_floors(tmp_path, floor_row("ridge", 0.5, 1.0, **of_others))
    (answer,) = collect(tmp_path, tmp_path).answers
    said = "are beside ridge (not compared) and training alone"
    assert said in sentences.floors_sentence(answer)
    assert sentences.worth_sentence(answer) == ""


def test_one_floor_is_blended_with_all_seeds(tmp_path):
    """That with the most recall of validation links over the seeds, though not of each of them."""
    recalls = {"profile": (0.6, 0.45), "ridge": (0.5, 0.6), "denoised": (0.9,)}
    for seed in range(2):
        run = write_run(tmp_path, "ns", [9, 5, 3], 20, [0, 0.4, 0.53], seed=seed)
        rows = [blend_row(of[seed], 0.01, name) for name, of in recalls.items() if seed < len(of)]
        blend.write(run, rows)
    floors = [floor_row(name, 0.5 if name == "denoised" else 0.4, 1.0) for name in recalls]
    keep_floors(tmp_path, *floors)
    (answer,) = collect(tmp_path, tmp_path).answers
    (both,) = answer.blends
    assert both.floor.row["floor"] == "ridge"
    assert both.reported.recall == pytest.approx(0.55)
    said = sentences.floors_sentence(answer)
    assert "(0.7 of training, 0.3 of ridge), 0.550" in said
    assert "are beside denoised (+0.050" in said, "the best floor, though another is in it"


# --- seconds that derived item features took


def test_times_to_a_recall_count_features(tmp_path):
    """The best arm is at its recalls after 2 and 4 s, the other one after 20 and 40."""
    more = {"feature_seconds": 3.5, "errors": ERRORS}
    write_run(tmp_path, "strat-ns", [9, 3, 2.9], 20, [0, 0.4, 0.53], **more)
    write_run(tmp_path, "iid", [9, 4, 3], 200, [0, 0.3, 0.4], **more)
    keep_floors(tmp_path, floor_row("profile", 0.512, 3.5))
    results = collect(tmp_path, tmp_path)
    (answer,) = results.answers
    # 0.95 of 0.53 is 0.5035: linear between 0.4 after 2 s and 0.53 after 4 s.
    waits = 3.5 + 2 + 2 * (0.95 * 0.53 - 0.4) / 0.13
    assert answer.best.total_seconds == pytest.approx(waits)
    assert [at for at, _ in answer.best.means("test_recall_at_50")] == pytest.approx([5.5, 7.5])
    table = answer_tables(results.answers, {})[0]
    shown = [[cell.text for cell in row[1:3]] for row in table.rows]
    assert shown == [[f"{waits:.3g}", "4"], ["never", "40"], ["3.5", "-"]], "without them: training"
    assert "above profile (+0.018 ± 0.007, after 7.5 s)." in table.lead
    assert table.lead.endswith("Times count the item features: 3.5 s.")
    assert {*results.arms["feature_seconds"].to_pylist()} == {3.5}
    run = answer.best.first
    table = run_table(run.summary | {"train_seconds": 2.0}, run.curve, run.feature_seconds)
    facts = {name.text: value.text for name, value in table.rows}
    assert facts["item features"] == "3.5 s before training"


HISTORY = {"encoder": "mf", "user_tower": "history"}


@pytest.mark.parametrize(
    ("more", "is_read"),
    [
        *(({}, True), ({"features": "ignore"}, False), ({"encoder": "mf"}, False)),
        ({"encoder": "mlp", "features": "ignore"}, True),
        *((HISTORY | {"history_of": of}, of != "ids") for of in ("content", "both", "ids")),
    ],
)
def test_runs_wait_only_for_features_that_they_read(tmp_path, more, is_read):
    run = read(write_run(tmp_path, "ns", [9, 3], 20, [0, 0.4], feature_seconds=3.5, **more))
    assert run.feature_seconds == 3.5 * is_read
    (answer,) = collect(tmp_path, tmp_path).answers
    assert answer.feature_seconds == 3.5 * is_read
    assert ("item features" in sentences.headline(answer)) == is_read
