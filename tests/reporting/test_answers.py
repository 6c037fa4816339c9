"""The answer about a data set, by hand and by a second computation."""

import math

import numpy as np
import pytest
from independent.records import RECALL, error_of, read_runs, soonest
from support.cli import check, invoke
from support.records import REPOSITORY, floor_row, kept, write_run

from ncfbench.reporting.answers import caveats, worth
from ncfbench.reporting.results import collect
from ncfbench.reporting.views import answers as views
from ncfbench.reporting.views import sentences
from ncfbench.reporting.views.run import run_table
from ncfbench.runs.folder import read
from ncfbench.runs.labels import NO_CHOICES
from ncfbench.runs.quality import CERTAIN
from ncfbench.storage import schemas, tables

ERRORS = (0.003, 0.004)


def answer_of(folder, *floors):
    """The only answer, beside floors of some recalls."""
    if floors:
        tables.write_rows(folder / "floors.parquet", list(floors), schemas.FLOOR)
    (answer,) = collect(folder, folder).answers
    return answer


def codes_of(answer):
    return [caveat.code for caveat in caveats(answer)]


def test_the_soonest_of_about_the_best_is_recommended(tmp_path):
    """Of two losses and three samplers: 0.4 is the best mean recall, so 0.38 is the level, and
    strat-ns is within half a percent of the best, and sooner at 0.38.
    """
    for seed, off in ((0, 0.01), (1, -0.01)):  # which cancels in the mean
        for loss, sampler, recalls, ms in (
            ("softmax", "ns", [0, 0.2 + off, 0.3 + off, 0.4 + off], 10),
            ("sg", "strat-ns", [0, 0.3 + off, 0.39 + off, 0.399 + off], 5),
            ("sg", "iid", [0, 0.1, 0.2, 0.3], 40),
        ):
            more = {"loss": loss, "seed": seed, "errors": ERRORS}
            write_run(tmp_path, sampler, [9, 5, 4, 3], ms, recalls, **more)
    answer = answer_of(tmp_path)
    assert answer.best.config.sampler == "strat-ns"
    assert -answer.target == pytest.approx(0.95 * 0.4)
    assert answer.best.seconds == pytest.approx((100 + 100 * 8 / 9) * 0.005)
    arms = {arm.config.sampler: arm for arm in answer.arms}
    assert arms["ns"].seconds == pytest.approx(280 * 0.010)
    # Within a seed: 0.38 where the recalls are 0.01 above, and 0.01 below.
    logs = [
        np.log((200 + 100 * (0.8 - sign / 10)) * 0.01 / ((100 + 100 * (8 - sign) / 9) * 0.005))
        for sign in (1, -1)
    ]
    assert arms["ns"].behind.value == pytest.approx(np.exp(np.mean(logs)))
    assert [arms[name].status for name in ("ns", "iid")] == ["slower", "slower"]
    assert arms["iid"].behind is None
    rows = [(row.choice, row.value, row.arm.config.sampler) for row in worth(answer)]
    assert rows == [("sampler", "ns", "ns"), ("sampler", "iid", "iid"), ("loss", "softmax", "ns")]
    assert answer.fall == pytest.approx(0.399 / ((0.3 + 0.39) / 2) - 1)


def test_without_recall_there_is_no_answer(tmp_path):
    write_run(tmp_path, "iid", [9, 5, 3], 40)
    assert collect(tmp_path, tmp_path).answers == []
    printed = invoke("report", tmp_path)
    check(printed, 0)
    assert printed.stdout.startswith("Speedup over iid")


CHOICES = {"dimension": 20, "batch_size": 64, "word_dropout": 0.2, "learning_rate": 0.03}
CHOICES |= {"patience": 3, "probe_every": 50, "item_block": 64}


@pytest.mark.parametrize(("setting", "value"), CHOICES.items())
def test_arms_differ_in_any_setting(tmp_path, setting, value):
    """Runs of one seed that differ in a setting alone are two arms."""
    write_run(tmp_path, "ns", [9, 5, 3], 40, [0, 0.3, 0.3])
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.3, 0.4], **{setting: value})
    answer = answer_of(tmp_path)
    assert len(answer.arms) == 2
    assert answer.best.config.to_dict()[setting] == value
    assert [row.choice for row in worth(answer)] == [setting] * (setting not in NO_CHOICES)


def test_an_arm_has_one_row_for_all_its_choices(tmp_path):
    write_run(tmp_path, "ns", [9, 5, 3], 40, [0, 0.3, 0.3], loss="softmax", dimension=20)
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.3, 0.4])
    shown = [row[0].text for row in views.worth_table(answer_of(tmp_path)).rows]
    assert shown == ["the recommended", "loss softmax, dimension 20"]


def test_seeds_that_some_arm_lacks_do_not_decide(tmp_path):
    """The second seed of ns is far better, and trained for less; the first is the one that both
    have, and no number of the answer has the second.
    """
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3], errors=ERRORS)
    write_run(tmp_path, "ns", [9, 4], 10, [0, 0.9], seed=1, errors=ERRORS)
    write_run(tmp_path, "ns", [9, 1, 1], 10, [0, 0.35, 0.4], loss="softmax", errors=ERRORS)
    answer = answer_of(tmp_path, floor_row("ridge", 0.35, 1.0))
    assert answer.best.config.loss == "softmax"
    assert [-arm.level for arm in answer.arms] == pytest.approx([0.4, 0.3])
    assert [arm.reported.text() for arm in answer.arms] == ["0.400 ± 0.005", "0.300 ± 0.005"]
    assert "(+0.050 ± 0.007, after 2 s)" in sentences.headline(answer)
    assert codes_of(answer).count("few_seeds") == 2
    assert "Decided by seed 0: not all arms have" in str(caveats(answer))
    check(invoke("report", tmp_path), 0)
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


def test_arms_without_a_common_seed_are_compared_by_means(tmp_path):
    """0.38 after 10 s and after 20 s: within a factor of 3.0 nothing is known of other seeds."""
    write_run(tmp_path, "ns", [9, 4, 2], 100, [0, 0.38, 0.4], seed=0)
    for seed, ms in ((1, 190), (2, 210)):
        write_run(tmp_path, "strat-ns", [9, 4, 2], ms, [0, 0.38, 0.4], loss="log", seed=seed)
    write_run(tmp_path, "iid", [9, 4, 2], 100, [0, 0.2, 0.3], seed=1)
    arms = {arm.config.sampler: arm for arm in answer_of(tmp_path).arms}
    statuses = [arms[name].status for name in ("ns", "strat-ns", "iid")]
    assert statuses == ["recommended", "tied", "slower"]
    assert arms["strat-ns"].expected == arms["strat-ns"].behind.value == pytest.approx(2.0)
    assert arms["iid"].behind is None, "never there"
    check(invoke("report", tmp_path), 0)
    check(invoke("report", tmp_path, "--verify"), 0, "0 do not match")


def test_other_machines_and_diverged_arms_stay_out(tmp_path):
    write_run(tmp_path, "ns", [9, 4, 2], 10, [0, 0.2, 0.3], time="2026-02-02")
    write_run(tmp_path, "ns", [9, 4, 2], 1, [0, 0.3, 0.301], encoder="bow", key="another")
    write_run(tmp_path, "ns", [9, 1], 1, [0, 0.9], loss="log", status="diverged")
    write_run(tmp_path, "ns", [9, 1, 1], 10, [0, 0.1, 0.25], loss="softmax")
    answer = answer_of(tmp_path)
    assert answer.best.config.loss == "sg"
    assert [arm.status for arm in answer.arms] == ["recommended", "slower", "diverged"]
    assert codes_of(answer)[0] == "other_machine"
    expected = ["decided_by_test", "undertrained", "few_seeds", "not_interleaved"]
    assert codes_of(answer)[1:] == expected
    # Where another machine has more recall, the answer is about its runs.
    write_run(tmp_path, "ns", [9, 4, 2], 1, [0, 0.3, 0.31], encoder="mlp", key="another")
    answer = answer_of(tmp_path)
    assert answer.best.config.encoder in ("bow", "mlp")
    assert {arm.config.encoder for arm in answer.arms} == {"bow", "mlp"}


@pytest.mark.parametrize("dataset", ["citeulike", "movielens"])
def test_a_second_computation_gives_the_same(dataset):
    (answer,) = (row for row in kept("rivals").answer_rows if row["dataset"] == dataset)
    runs = read_runs(REPOSITORY / "results/rivals")
    arms = [[runs[name] for name in arm["runs"]] for arm in answer["arms"]]
    level, results = soonest(arms)
    assert -answer["level"] == pytest.approx(level, rel=1e-9)
    for arm, seeds, (recall, _, seconds) in zip(answer["arms"], arms, results, strict=True):
        names = ("seconds_to_level", "level", "test_recall_at_50")
        written = [math.nan if arm[name] is None else arm[name] for name in names]
        test = math.fsum(run.chosen[RECALL] for run in seeds) / len(seeds)
        expected = [seconds, -recall, test]
        assert written == pytest.approx(expected, rel=1e-9, nan_ok=True)
        error = error_of([run.chosen for run in seeds])
        assert arm["test_recall_at_50_error"] == pytest.approx(error, rel=1e-9)
    near = [
        (seconds, at)
        for at, (recall, _, seconds) in enumerate(results)
        if recall >= 0.995 / 0.95 * level
    ]
    assert answer["arms"][min(near)[1]]["status"] == "recommended"


def test_an_arm_has_one_recall_of_one_epoch(tmp_path):
    """Validation chose 0.42 at epoch 2 of ns; it ends at 0.4, and ridge is between. Seeds may
    report other epochs: 2 and 3 of iid are 2.5 in the mean. All tables and sentences say so.
    """
    for seed in range(2):
        more = {"seed": seed, "errors": (0.001, 0.001)}
        rises = [0, 0.1, 0.2 + seed / 10, 0.25]
        recalls = [0, 0.3, 0.3, 0.32]
        write_run(tmp_path, "iid", [9, 5, 4, 3], 200, recalls, validation=rises, **more)
        recalls = [0, 0.3, 0.42, 0.4]
        write_run(tmp_path, "ns", [9, 5, 2, 1], 20, recalls, validation=[0, 0.1, 0.3, 0.2], **more)
    answer = answer_of(tmp_path, floor_row("ridge", 0.405, 1.0))
    assert [arm.reported.recall for arm in answer.arms] == pytest.approx([0.42, 0.31])
    (floor,) = views.floor_rows(answer)
    assert (floor["best_arm"], floor["above_by"]) == ("passes", pytest.approx(0.42 - 0.405))
    assert "Recall@50 of test links: 0.420 ± 0.001 at epoch 2" in sentences.headline(answer)
    shown = [[cell.text for cell in row[-2:]] for row in views.worth_table(answer).rows]
    assert shown[:2] == [["0.420 ± 0.001", "2"], ["0.310 ± 0.010", "2.5"]]
    recall = {row["sampler"]: row for row in collect(tmp_path, tmp_path).recall}
    assert recall["ns"]["test_recall_at_50"] == pytest.approx(0.42)
    assert recall["iid"]["reported_epoch"] == 2.5


def test_one_arm_is_no_choice(tmp_path):
    """After a first run the report says what to do for a choice."""
    write_run(tmp_path, "iid", [9, 5, 3], 10, [0, 0.2, 0.3], dimension=20)
    answer = answer_of(tmp_path)
    assert "few_arms" in codes_of(answer)
    (table,) = views.answer_tables([answer], {"--runs-dir": "my runs"})
    assert table.notes[-1] == "ncfbench advise citeulike --runs-dir 'my runs'"


def test_longer_runs_replace_shorter_ones_of_an_arm(tmp_path):
    for epochs, recalls in ((2, [0, 0.2, 0.5]), (3, [0, 0.2, 0.3, 0.35])):
        write_run(tmp_path, "iid", [9, 5, 4, 3][: epochs + 1], 100, recalls, epochs=epochs)
    write_run(tmp_path, "ns", [9, 5, 4, 3], 10, [0, 0.2, 0.3, 0.4], epochs=3)
    answer = answer_of(tmp_path)
    levels = {arm.name: -arm.level for arm in answer.arms}
    assert levels == {"cnn sg ns": 0.4, "cnn sg iid": 0.35}
    assert answer.reasons == [("note", "1 run left out: a longer one has its arm and seed.")]


def test_a_certain_recall_is_marked_where_it_stands(tmp_path):
    """With as many test items as M or fewer, recall@M is 1 whatever was learned."""

    def edit(curve):
        curve[-1]["test_recall_at_50_chance"] = 1.0

    for sampler in ("iid", "ns"):
        run = write_run(tmp_path, sampler, [9, 5, 3], 10, [0, 1.0, 1.0], edit=edit)
    text = " ".join(invoke("report", tmp_path).stdout.lower().split())
    assert text.count("recall@50 is 1 by construction") == 2  # of the answer, and of recalls
    summary = {**read(run).summary, "train_seconds": 1.0}
    assert CERTAIN in [row[1].text for row in run_table(summary, []).rows]
