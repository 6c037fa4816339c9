"""Claims of docs/results.md, computed from kept records."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import search_choices as choices
import search_reference as reference
from board import BOARD
from claims_readme import (
    AHEAD_AT_THE_HEAD,
    GOOD,
    MEASURES,
    good_start,
    measured,
    one_core,
    passed,
    seeds,
)
from traced import Section, read, traces, traces_rows, word

from ncfbench.reporting.arms import VALIDATION_RECALL
from ncfbench.timing.intervals import QUALITY_SPREAD

PAGE = "docs/results.md"
DATA = Section(PAGE, "Results", "ncfbench report results/good-start")
MEASURED = Section(PAGE, "By other measures", "ncfbench report results/good-start")
DECIDES = Section(PAGE, "What decides, on six data sets", "python benchmarks/search_choices.py")


@traces_rows(DATA, choices.NAMES.values())
def data_rows() -> list[str]:
    rows, answers = [], {each.config.dataset: each for each in good_start().values()}
    described = json.loads(read("results/good-start/datasets.json"))
    for name, title in choices.NAMES.items():
        answer = answers[name]
        facts = described[answer.data_fingerprint]["statistics"]
        counts = (facts[key] for key in ("users", "items", "training_links"))
        chance = answer.floors[0].row["test_recall_at_50_chance"]
        cells = [title, *(f"{count:,}" for count in counts), f"{facts['words_mean']:.0f}"]
        rows.append(f"| {' | '.join([*cells, f'{chance:.3f}'])} |")
    return rows


@traces_rows(MEASURED, GOOD)
def measure_rows() -> list[str]:
    return [
        f"| {' | '.join([title, *(f'{of:.3f}, {floor:.3f}' for of, floor in own.values())])} |"
        for title, own in measured().items()
    ]


@traces(MEASURED, "| trained, best floor |")
def measure_names() -> list[str]:
    return ["recall@50", "recall@10", "NDCG@50", "MRR"]


@traces(MEASURED, "The README compares")
def compared() -> list[str]:
    return ["recall@50, which does not ask where in the first fifty"]


@traces(MEASURED, "The same evaluations by other measures")
def seeds_of_measures() -> list[str]:
    return ["by recall@50", seeds()[0].lower()]


@traces(MEASURED, "*Floors do better at the head of the list")
def sets_at_the_head() -> list[str]:
    sets = {title.partition(",")[0] for title in GOOD}
    ahead = {title for title in GOOD if not passed(title) & {*MEASURES[1:]}}
    return [f"on {word(len(ahead))} of the {word(len(sets))} sets"]


@traces(MEASURED, "By recall@10, NDCG@50 and MRR")
def head_of_the_list() -> list[str]:
    """The names of data sets stand in the sentence, without figures."""
    rows = {*AHEAD_AT_THE_HEAD, [*GOOD][-1]}
    assert {title for title in GOOD if not passed(title) & {*MEASURES[1:]}} == rows
    assert good_start()[[*GOOD][-1]].floors[0].row["floor"] == "ials"
    return ["By recall@10, NDCG@50 and MRR"]


@traces(MEASURED, "*The wider bag of words")
def by_each_measure() -> list[str]:
    rows = {title for title in GOOD if passed(title) == {*MEASURES}}
    assert rows == {"CiteULike, [wider bag]", "Yelp"}
    assert passed("MovieLens with plots") == {*MEASURES} - {"mrr"}
    return []


@traces(MEASURED, "Validation recall@50 chose")
def chosen_by() -> list[str]:
    assert VALIDATION_RECALL == "validation_recall_at_50"
    return ["Validation recall@50"]


@traces(MEASURED, "If the first ten items")
def ten_items() -> list[str]:
    return ["first ten items"]


@traces_rows(DECIDES, choices.NAMES.values())
def choice_rows() -> list[str]:
    return [f"| {' | '.join(x.text for x in row)} |" for row in choices.choices_table().rows]


def worths(choice: str) -> list[Mapping[str, choices.Worth]]:
    """Return what the values of a choice are worth on each data set."""
    return [own[choice] for own in choices.worths().values()]


def times_sooner(choice: str, value: str, other: str) -> dict[str, float]:
    """Return how many times sooner a value is, by data set, where one seed tells them apart."""
    pairs = zip(choices.NAMES, worths(choice), strict=True)
    found = {name: own[other].seconds / own[value].seconds for name, own in pairs}
    return {name: ratio for name, ratio in found.items() if ratio > QUALITY_SPREAD.factor}


@traces(DECIDES, "A hundred settings")
def searched() -> list[str]:
    trials = [each["trials"] for each in choices.searches().values()]
    assert {len(each) for each in trials} == {100}
    longest = max(trial["seconds"][-1] for each in trials for trial in each)
    sets = f"each of {word(len(trials))} data sets, for {longest:.0f} s at most"
    minutes = [sum(trial["wall_seconds"] for trial in each) / 60 for each in trials]
    return ["A hundred settings", sets, f"took {min(minutes):.0f} to {max(minutes):.0f} minutes"]


@traces(DECIDES, "From a fifth of its time on")
def ended_early() -> list[str]:
    after, least = reference.HOPELESS
    assert after == 1 / 5
    return ["a fifth", f"less than {least} of the best"]


@traces(DECIDES, "Each cell says, for one value")
def measured_on() -> list[str]:
    machine = one_core(each["environment"] for each in choices.searches().values())
    return [machine, f"had {choices.SHARE} of that best"]


@traces(DECIDES, "A search goes where recall is")
def tried() -> list[str]:
    trials = choices.searches()["cite"]["trials"]
    samplers = [each["config"]["sampler"] for each in trials if each["config"]["loss"] == "softmax"]
    ns, strat = (samplers.count(name) for name in ("ns", "strat-ns"))
    return [f"{ns} on CiteULike have `ns`, and {strat} `strat-ns`"]


@traces(DECIDES, "Nor is the best of a hundred settings")
def more_than_searched() -> list[str]:
    found = max(map(reference.best, reference.read(BOARD / "debian.json.gz")["trials"]))
    searched = max(map(reference.best, choices.searches()["debian"]["trials"]))
    return ["a hundred settings", f"have {found:.3f}, those of the search {searched:.3f}"]


@traces(DECIDES, "Skip-gram, the paper's")
def skip_gram() -> list[str]:
    assert all(math.isinf(each["sg"].seconds) for each in worths("loss"))
    return [f"never comes to {choices.SHARE} of"]


@traces(DECIDES, "Where it was not ended it loses")
def skip_gram_loses() -> list[str]:
    own = [each["sg"] for each in worths("loss")]
    lost = [100 * (1 - each.share) for each in own if not each.is_cut]
    return [f"loses {min(lost):.0f} to {max(lost):.0f} %"]


@traces(DECIDES, "A softmax has the highest recall")
def softmax() -> list[str]:
    best = [max(own, key=lambda value: own[value].share) for own in worths("loss")]
    assert [*choices.NAMES][best.index("log")] == "debian"
    return [f"on {word(best.count('softmax'))} sets"]


@traces(DECIDES, "*A softmax over the batch")
def softmax_above() -> list[str]:
    assert all(own["softmax"].share > own["sg"].share for own in worths("loss"))
    return []


@traces(DECIDES, "It is a bag of words on CiteULike")
def encoders() -> list[str]:
    ahead = [max(own, key=lambda value: own[value].share) for own in worths("encoder")]
    assert ahead == ["bow", "cnn", "bow", "bow", "mlp", "cnn"]
    debian = good_start()["Debian's packages"]
    (arm,) = debian.arms
    searched = choices.searches()["debian"]
    assert debian.data_fingerprint == searched["fingerprint"]
    best = max(recall for _, recall in arm.means(VALIDATION_RECALL))
    found = max(map(reference.best, reference.read(BOARD / "debian.json.gz")["trials"]))
    return [f"comes to {best / found:.2f} of the best known"]


@traces(DECIDES, "Try `bow`, `cnn` and `mlp`")
def six_sets() -> list[str]:
    return [f"no rule from {word(len(choices.NAMES))} sets"]


@traces(DECIDES, "In recall `ns` and `strat-ns`")
def samplers_recall() -> list[str]:
    less = [100 * (own["ns"].share - own["strat-ns"].share) for own in worths("sampler")]
    yelp = less.pop([*choices.NAMES].index("yelp"))
    most = max(map(abs, less))
    tried = choices.worths()["yelp"]["sampler"]
    return [
        f"by {most:.0f} % or less",
        f"tried {tried['strat-ns'].trials} times, has {yelp:.0f} % less than `ns`",
        f"tried {tried['ns'].trials} times",
    ]


@traces(DECIDES, "Drawn negatives (`neg`) are soonest nowhere")
def drawn_negatives() -> list[str]:
    assert "neg" not in [next(iter(own)) for own in worths("sampler")]
    return []


@traces(DECIDES, "*The user tower*")
def user_towers() -> list[str]:
    pairs = zip(choices.NAMES, worths("user_tower"), strict=True)
    assert [name for name, own in pairs if own["history"].share < own["table"].share] == ["debian"]
    assert {*times_sooner("user_tower", "history", "table")} == {"cite", "plots", "yelp"}
    assert [*times_sooner("user_tower", "table", "history")] == ["ml-time"]
    return []


@traces(DECIDES, "One seed: times")
def one_seed() -> list[str]:
    return [f"a factor of {QUALITY_SPREAD.factor:.1f}"]
