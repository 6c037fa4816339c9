"""Claims of README.md, computed from kept records."""

import json
from dataclasses import replace
from functools import cache
from statistics import fmean

import search_choices as choices
from kept import REPOSITORY, kept
from traced import Section, read, traces, traces_rows, word

from ncfbench.reporting.floors import compare, standing
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.profiles import by_profile
from ncfbench.reporting.quality import TEST_RECALL
from ncfbench.storage import schemas, tables

PAGE = "README.md"
TOLERATED = 0.15
"""Relative error of a prediction that the page names."""
PAPER = "ncfbench report results/citeulike-title-tags"
SIX = Section(PAGE, "The answer on six data sets", "ncfbench report results/good-start")
TRUSTED = Section(
    PAGE,
    "Can the numbers be trusted?",
    "ncfbench profile --dataset citeulike && ncfbench report results/movielens-plots",
)
READ_ON = Section(PAGE, "Read on", "python benchmarks/search_choices.py")
GOOD = {
    "CiteULike, `good`": ("cite", False),
    "CiteULike, [wider bag]": ("cite", True),
    "MovieLens with plots": ("plots", False),
    "anime": ("anime", False),
    "Yelp": ("yelp", False),
    "Debian's packages": ("debian", False),
    "MovieLens 100K by time, `mf` and `ns`": ("ml-time", False),
}
"""First cells, with the data set and whether the bag is bare."""
MEASURES = ("recall_at_50", "recall_at_10", "ndcg_at_50", "mrr")
PREDICTED = ("step_iteration_seconds", "full_iteration_seconds", "step_speedup", "full_speedup")
"""Columns of the cost model, without ``predicted_`` and ``measured_``."""
AHEAD_AT_THE_HEAD = ("CiteULike, `good`", "anime", "Debian's packages")
"""Where ridge regression is, by all measures but recall@50."""


@cache
def good_start():
    """Return the answers of results/good-start by :data:`GOOD`."""
    found = {
        (arm.config.dataset, bool(arm.config.to_dict().get("bare_bag"))): replace(each, arms=[arm])
        for each in kept("good-start").answers
        for arm in each.arms
    }
    assert len(found) == len(GOOD)
    return {title: found[key] for title, key in GOOD.items()}


@cache
def measured():
    """Return each of :data:`MEASURES` of what is trained, at its chosen epoch, and of the best
    floor.
    """
    found = {}
    for title, answer in good_start().items():
        (arm,), floor = answer.arms, answer.floors[0]
        chosen = [
            max(run.curve, key=lambda row: row["validation_recall_at_50"] or 0.0)
            for run in arm.runs.values()
        ]
        assert [row[TEST_RECALL] for row in chosen] == arm.reported.recalls
        found[title] = {
            measure: (fmean(row[f"test_{measure}"] for row in chosen), floor.row[f"test_{measure}"])
            for measure in MEASURES
        }
    return found


def passed(title):
    """Return the measures by which the best floor of a row is passed."""
    return {measure for measure, (trained, floor) in measured()[title].items() if trained > floor}


@traces_rows(SIX, GOOD)
def good_rows():
    rows: list[str] = []
    for title, answer in good_start().items():
        (arm,), floor = answer.arms, answer.floors[0]
        kind = {"ridge": "ridge", "ials": "iALS", "ease": "EASE"}[floor.row["floor"]]
        best = f"{kind} {floor.recall:.3f}, {three_digits(floor.seconds)}"
        best = "the same" if any(best in row for row in rows) else best
        at, both = standing(arm, floor).seconds, ["-", "-"]
        for blend in answer.blends:
            own = blend.reported
            above = compare(own, floor)
            both = [f"{own.recall:.3f} ± {own.error():.3f}"]
            both += [f"{above.above_by:.3f} ± {above.error:.3f}"]
        cells = [title, best, f"{arm.reported.recall:.3f} ± {arm.reported.error():.3f}"]
        cells += ["-" if at is None else f"{at:.1f}", *both]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


@traces(SIX, "![Recall of test links")
def good_sets():
    return [f"{word(len({answer.config.dataset for answer in good_start().values()}))} data sets"]


@traces(SIX, "Five seeds;")
def seeds():
    (count,) = {len(answer.arms[0].runs) for answer in good_start().values()}
    return [f"{word(count).capitalize()} seeds"]


def one_core(environments):
    """Return the machine of some records, which is the same for all pages."""
    machines = {(each["cores"], each["cpu"]) for each in environments}
    assert machines == {(1, "Intel(R) Xeon(R) Processor")}
    return "one core of an Intel Xeon"


@traces(SIX, "Seconds are those of one core")
def good_conditions():
    paths = (REPOSITORY / "results/good-start").glob("*/environment.json")
    machine = one_core(map(json.loads, map(read, paths)))
    given = [
        title
        for title, answer in good_start().items()
        for floor in answer.floors
        if floor.row["chosen_by"] == "given"
    ]
    assert {*given} == {"Debian's packages"}
    return [machine]


def is_clear(answer, both):
    """Return whether what is trained, or both, is clearly above the best floor."""
    floor, found = answer.floors[0], [blend.reported for blend in answer.blends * both]
    if both:
        return any(compare(own, floor).word == "passes" for own in found)
    return standing(answer.arms[0], floor).word == "passes"


@traces(SIX, "So both together are")
def good_verdicts():
    """The names of data sets stand in the sentences, without figures."""
    trained, both = (
        [title for title, answer in good_start().items() if is_clear(answer, of_both)]
        for of_both in (False, True)
    )
    assert trained == ["CiteULike, [wider bag]", "MovieLens with plots", "Yelp"]
    assert {*good_start()} - {*both} == {"MovieLens 100K by time, `mf` and `ns`"}
    return ["two standard errors"]


@traces(SIX, "By recall@10 and NDCG@50")
def head_of_the_list():
    """Training alone has less than ridge regression there; both together have more."""
    for title in AHEAD_AT_THE_HEAD:
        answer = good_start()[title]
        assert answer.floors[0].row["floor"] == "ridge"
        for measure in ("recall_at_10", "ndcg_at_50"):
            assert measure not in passed(title)
            for blend in answer.blends:
                rows = [row[f"test_{measure}"] for row in blend.rows]
                assert fmean(rows) > answer.floors[0].row[f"test_{measure}"]
    return ["By recall@10 and NDCG@50"]


@traces(SIX, "With the paper's CNN", PAPER)
def sampler_saving():
    """By the times of a profile; the table itself stands in docs/paper.md."""

    def is_main(row):
        named = (row["encoder"], row["loss"], row["variant"], row["settings"] or "")
        return named == ("cnn", "sg", "", "")

    results = kept("citeulike-title-tags")
    recalls = {row["sampler"]: row["test_recall_at_50"] for row in results.recall if is_main(row)}
    profiled = [each for each in results.profiled if each.rounds == 7 and is_main(each.rows[0])]
    (rows,) = (each.rows for each in profiled if not each.computation)
    (row,) = (row for row in rows if row["sampler"] == "strat-ns")
    floors = [floor.recall for floor in results.floors[row["data_fingerprint"]]]
    assert len(floors) == 2
    assert min(floors) > recalls["strat-ns"]
    total = row["total"]
    return [
        f"{total.value:.1f} times sooner",
        f": {total.lower:.1f} to {total.upper:.1f}), with",
        f"a recall of {recalls['strat-ns']:.3f} instead of {recalls['iid']:.3f}: below both floors",
    ]


@traces(SIX, "With other losses, encoders and data", PAPER)
def sampler_savings():
    totals = [
        row["total"].value
        for name in ("citeulike-title-tags", "movielens-plots")
        for each in kept(name).profiled
        for row in each.rows
        if row["sampler"] == "strat-ns" and row["total"] and not each.computation
    ]
    return [f"{min(totals):.1f} to {max(totals):.1f} times"]


def worst_error(row):
    """Return how far predictions of a sampler are off at most, as a share of the measurement."""
    return max(abs(row[f"predicted_{of}"] / row[f"measured_{of}"] - 1) for of in PREDICTED)


@traces(TRUSTED, "In nine profiles")
def predictions():
    """By benchmarks/README.md, which has the commands of all nine."""
    cells = json.loads(read("benchmarks/results/costmodel-cpu.json"))["cells"]
    found = [worst_error(row) for cell in cells for row in cell["samplers"]]
    assert max(found) <= TOLERATED
    assert {cell["pass"] for cell in cells} == {1, 2}
    paths = REPOSITORY.glob("results/*/costmodel.parquet")
    rows = [by_profile(tables.read_rows(path, schemas.COSTMODEL)) for path in paths]
    worst = [max(map(worst_error, own.values())) for profiles in rows for own in profiles]
    further = sum(error > TOLERATED for error in worst)
    return [
        f"In {word(len(cells) // 2)} profiles, each measured twice",
        f"within {100 * TOLERATED:.0f} %",
        f"of the {len(worst)} that are kept with the results {word(further)} had at least one",
        f"by {100 * max(worst):.0f} % at most",
    ]


@traces(READ_ON, "| [results]")
def searched_sets():
    return [f"{word(len(choices.searches()))} data sets"]


@traces(READ_ON, "| [paper]", f"{PAPER} && ncfbench report results/movielens-plots")
def paper_sets():
    """Those with everything that a verdict on the paper's claims needs."""
    return [f"{word(len(list(REPOSITORY.glob('results/*/audit.parquet'))))} data sets"]


REPORT = "ncfbench report results/frozen-start"
SETS = {
    "cite": ("CiteULike", "CiteULike, `good`"),
    "plots": ("plots", "MovieLens with plots"),
    "anime": ("anime", "anime"),
    "yelp": ("Yelp", "Yelp"),
}
"""Names of data sets on the page, and in README's table."""


@cache
def frozen():
    """Return the answers of results/frozen-start by data set."""
    found = {
        each.config.dataset.removesuffix("-frozen"): each for each in kept("frozen-start").answers
    }
    assert found.keys() == SETS.keys()
    return found


def floor_of(answer, name):
    (found,) = (each for each in answer.floors if each.row["floor"] == name)
    return found


def ridges():
    """Return recall of ridge regression on TF-IDF alone, and with vectors beside it."""
    found = {}
    for data, (_, title) in SETS.items():
        before, after = (floor_of(each, "ridge") for each in (good_start()[title], frozen()[data]))
        assert (before.row["content"], after.row["content"]) == ("TF-IDF", "TF-IDF and features")
        found[data] = before.recall, after.recall
    return found


def above():
    """Return how what is trained with the vectors stands to ridge regression with them."""
    return {
        data: standing(answer.arms[0], floor_of(answer, "ridge"))
        for data, answer in frozen().items()
    }


@traces(SIX, "With MiniLM's vectors", REPORT)
def first_page():
    errors = {data: own.above_by / own.error for data, own in above().items()}
    assert [data for data, own in errors.items() if own > 2] == ["yelp"]
    assert [data for data, own in errors.items() if own < -2] == ["cite"]
    cite, plots, anime, yelp = (f"{after:.3f}" for _, after in ridges().values())
    good = [f"{frozen()[data].arms[0].reported.recall:.3f}" for data in SETS]
    (seeds,) = {len(each.arms[0].runs) for each in frozen().values()}
    manifests = [kept("frozen-start").manifests[own] for own in kept("frozen-start").floors]
    seconds = [own["derived_features"]["embed"]["seconds"] for own in manifests]
    return [
        f"{min(seconds):.0f} to {max(seconds):.0f} s",
        f"has {cite} on CiteULike, {plots} on MovieLens, {anime} on anime and {yelp} on Yelp",
        f"in place of LSA, {', '.join(good[:-1])} and {good[-1]}",
        f"({word(seeds)} seeds",
    ]
