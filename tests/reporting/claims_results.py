"""Claims of docs/results.md, computed from kept records."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache, partial

import board
import search_choices as choices
import search_reference as reference
from bench_search import curve_of
from claims_readme import good_start
from traced import Section, read, traces, traces_rows, word

from ncfbench.reporting.arms import VALIDATION_RECALL
from ncfbench.reporting.render import markdown
from ncfbench.timing.ranking import ONE_SEED_FACTOR

PAGE = "docs/results.md"
DATA = Section(PAGE, "Results", "ncfbench report results/good-start")
DECIDES = Section(PAGE, "What decides, on six data sets", "python benchmarks/search_choices.py")
TUNED = Section(PAGE, "Ways to build batches, eight trials each", "python benchmarks/board.py")
DEAR = Section(PAGE, "Where items are dear", "python benchmarks/board.py")


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
    return {name: ratio for name, ratio in found.items() if ratio > ONE_SEED_FACTOR}


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


@traces(DECIDES, "Of each choice")
def measured_on() -> list[str]:
    machines = [each["environment"] for each in choices.searches().values()]
    assert {(each["cores"], each["cpu"]) for each in machines} == {
        (1, "Intel(R) Xeon(R) Processor")
    }
    return ["one core of an Intel Xeon", f"to {choices.SHARE} of the best of all"]


@traces(DECIDES, "Skip-gram, the paper's")
def skip_gram() -> list[str]:
    assert all(math.isinf(each["sg"].seconds) for each in worths("loss"))
    return [f"never comes to {choices.SHARE} of"]


@traces(DECIDES, "Where it was not ended it loses")
def skip_gram_loses() -> list[str]:
    own = [each["sg"] for each in worths("loss")]
    lost = [100 * (1 - each.share) for each in own if not each.is_cut]
    return [f"loses {min(lost):.0f} to {max(lost):.0f} %"]


@traces(DECIDES, "A softmax over")
def softmax() -> list[str]:
    best = [max(own, key=lambda value: own[value].share) for own in worths("loss")]
    assert [*choices.NAMES][best.index("log")] == "debian"
    return [f"on {word(best.count('softmax'))} sets, the log loss on Debian"]


@traces(DECIDES, "It is a bag of words on CiteULike")
def encoders() -> list[str]:
    ahead = [max(own, key=lambda value: own[value].share) for own in worths("encoder")]
    assert ahead == ["bow", "cnn", "bow", "bow", "mlp", "cnn"]
    debian = good_start()["Debian's packages"]
    (arm,) = debian.arms
    searched = choices.searches()["debian"]
    assert debian.data_fingerprint == searched["fingerprint"]
    best = max(recall for _, recall in arm.means(VALIDATION_RECALL))
    return [f"comes to {best / max(map(reference.best, searched['trials'])):.2f} of the best"]


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
        f"by {most:.0f} % or less, but for Yelp",
        f"`strat-ns` has {yelp:.0f} % less",
        f"`strat-ns` {tried['strat-ns'].trials} times there, and `ns` {tried['ns'].trials} times",
    ]


@traces(DECIDES, "To 0.9 of the best")
def samplers_seconds() -> list[str]:
    strat, ns = (
        times_sooner("sampler", *each) for each in (("strat-ns", "ns"), ("ns", "strat-ns"))
    )
    assert set(ns) == {"yelp", "ml-time"}
    assert set(choices.NAMES) - set(strat) - set(ns) == {"debian"}
    assert [*strat] == ["cite", "plots", "anime"]
    first, second, third = strat.values()
    return [
        f"To {choices.SHARE} of the best `strat-ns` is sooner on CiteULike",
        f"{first:.1f}, {second:.1f} and {third:.1f} times",
    ]


@traces(DECIDES, "Drawn negatives (`neg`) are soonest nowhere")
def drawn_negatives() -> list[str]:
    assert "neg" not in [next(iter(own)) for own in worths("sampler")]
    return []


@traces(DECIDES, "*The user tower*")
def user_towers() -> list[str]:
    pairs = zip(choices.NAMES, worths("user_tower"), strict=True)
    assert [name for name, own in pairs if own["history"].share < own["table"].share] == ["debian"]
    return [f"sooner on {word(len(times_sooner('user_tower', 'history', 'table')))} sets"]


@traces(DECIDES, "One seed: times")
def one_seed() -> list[str]:
    return [f"a factor of {ONE_SEED_FACTOR:.1f}"]


@traces(DECIDES, "On MovieLens by time")
def single_value() -> list[str]:
    search = choices.searches()["ml-time"]
    level = choices.SHARE * max(map(reference.best, search["trials"]))
    curves = {curve_of(trial, search).time_to(level): trial for trial in search["trials"]}
    soonest = min(curves)
    assert sum(recall >= level for recall in curves[soonest]["validation"]) == 1
    return [f"value above {choices.SHARE}", f"after {soonest:.3g} s"]


@cache
def boards(family: str = "") -> Mapping[str, Mapping[str, board.Standing]]:
    return board.kept_boards(family=family)


def dear() -> list[Mapping[str, board.Standing]]:
    """Return the boards of CiteULike and anime with a dear encoder."""
    own = boards("plain")
    assert own.keys() == {"anime", "cite"}
    return [own["cite"], own["anime"]]


def is_level(first: board.Standing, second: board.Standing, share: float = board.SHARES[0]) -> bool:
    """Return whether one seed cannot tell the times of two contestants apart."""
    times = [each.seconds[board.SHARES.index(share)] for each in (first, second)]
    return max(times) / min(times) < ONE_SEED_FACTOR


def soonest(share: float) -> dict[str, set[str]]:
    """Return the contestants that are soonest, or level with that one, by data set."""
    standings = board.beside_each_other(boards()).standings[share]
    return {
        name: {each for each, own in standings.items() if own[at].is_tied}
        for at, name in enumerate(boards())
    }


def board_rows(table: int, family: str = "") -> list[str]:
    return markdown.render([board.boards_tables(boards(family))[table]]).splitlines()


CONTESTANTS = ["", *board.CONTESTANTS, "ridge", "profile"]
traces_rows(TUNED, CONTESTANTS)(partial(board_rows, 0))
traces_rows(TUNED, CONTESTANTS)(partial(board_rows, 1))


@traces(TUNED, "Sixteen ways")
def ways() -> list[str]:
    trials = {own[each].trials for own in boards().values() for each in board.CONTESTANTS}
    assert trials == {board.TUNED}
    assert len(board.POINTWISE) == len(board.RANKING) == 2
    return [
        f"{word(len(board.CONTESTANTS)).capitalize()} ways to build batches on"
        f" {word(len(boards()))} of the data sets, each with {word(board.TUNED)} trials",
    ]


@traces(TUNED, "Seconds, features included,")
def targets() -> list[str]:
    return [" and ".join(map(str, board.SHARES)), "on one core of an Intel Xeon"]


@traces(TUNED, "Trials train for")
def longest_trials() -> list[str]:
    kept = [reference.read(board.BOARD / f"{name}.json.gz") for name in boards()]
    machines = {(own["environment"]["cores"], own["environment"]["cpu"]) for own in kept}
    assert machines == {(1, "Intel(R) Xeon(R) Processor")}
    longest = max(trial["seconds"][-1] for own in kept for trial in own["trials"])
    assert board.HOPELESS == (0.5, 0.5)
    return [
        f"for {longest:.0f} s at most",
        "from half of that on they end if they have less than half",
    ]


@traces(TUNED, "[Floors]")
def cores_of_floors() -> list[str]:
    paths = board.FLOORS.parent.glob("*/environment.json")
    machines = [json.loads(path.read_text()) for path in paths]
    assert {(each["cores"], each["cpu"]) for each in machines} == {
        (1, "Intel(R) Xeon(R) Processor")
    }
    return ["seconds of one fit"]


@traces(TUNED, "Models are those of the best trials")
def models() -> list[str]:
    pointwise = {
        name for name, (_, losses) in board.CONTESTANTS.items() if losses == board.POINTWISE
    }
    found: dict[str, set[tuple[str, str]]] = {}
    for name in boards():
        trials = reference.read(board.BOARD / f"{name}.json.gz")["trials"]
        for trial in trials:
            tower = trial["config"]["user_tower"]
            has_table = trial["contestant"] in pointwise and name in ("anime", "cite")
            assert tower == ("table" if has_table else "history")
            found.setdefault(name, set()).add(trial["config"]["encoder"])
    assert found == {"anime": {"bow"}, "cite": {"bow"}, "plots": {"cnn"}, "yelp": {"bow"}}
    return []


@traces(TUNED, "One seed: times")
def one_seed_of_boards() -> list[str]:
    titles = ("anime", "CiteULike, `good`", "MovieLens with plots", "Yelp")
    errors = [f"{good_start()[title].arms[0].chosen.error:.3f}" for title in titles]
    names = ("anime", "CiteULike", "plots", "Yelp")
    return [*one_seed(), *(f"{of} on {name}" for of, name in zip(errors, names, strict=True))]


@traces(TUNED, "*`strat-ns` with a ranking loss is never clearly behind")
def soonest_to_first() -> list[str]:
    assert set.intersection(*soonest(0.9).values()) == {"strat-ns"}
    return ["to 0.9."]


@traces(TUNED, "It is clearly first on plots")
def first_on_plots() -> list[str]:
    assert soonest(0.9)["plots"] == {"strat-ns"}
    plots = boards()["plots"]
    second = sorted(plots, key=lambda each: plots[each].seconds[0])[1]
    assert second == "ns, usual logQ"
    ratio = plots[second].seconds[0] / plots["strat-ns"].seconds[0]
    return [f"takes {ratio:.1f} times as long"]


@traces(TUNED, "It is level with two others")
def level_on_others() -> list[str]:
    names = ("anime", "cite", "yelp")
    anime, cite, yelp = (word(len(soonest(0.9)[name]) - 1) for name in names)
    return [f"with {anime} others on anime, with {cite} on CiteULike and with {yelp} on Yelp"]


@traces(TUNED, "*To 0.97 no way is first everywhere")
def at_second() -> list[str]:
    assert not set.intersection(*soonest(0.97).values())
    return ["To 0.97 no way"]


@traces(TUNED, "On CiteULike `strat-ns` and `ns`, with either logQ correction, are")
@traces(TUNED, "On Yelp `ns`, `strat-ns`, `ns-distinct` and `mixed-ns` are")
@traces(TUNED, "On anime `strat-ns` ends just below")
@traces(TUNED, "On plots nobody does in this time")
def soonest_to_second() -> list[str]:
    assert soonest(0.97) == {
        "cite": {"strat-ns", "ns", "ns, usual logQ"},
        "anime": {"ns-distinct", "mixed-ns"},
        "plots": set(),
        "yelp": {"ns", "strat-ns", "ns-distinct", "mixed-ns"},
    }
    assert 0.96 < boards()["anime"]["strat-ns"].share < 0.97
    return []


@traces(TUNED, "On anime `neg`")
def drawn_on_anime() -> list[str]:
    anime = boards()["anime"]
    assert is_level(anime["neg"], anime["strat-ns"])
    return ["level with `strat-ns` to 0.9"]


@traces(TUNED, "On CiteULike it takes")
def drawn_elsewhere() -> list[str]:
    own = (boards()[name] for name in ("cite", "plots", "yelp"))
    cite, *others = (each["neg"].seconds[0] / each["strat-ns"].seconds[0] for each in own)
    return [
        f"takes {cite:.1f} times as long as `strat-ns`",
        "on plots {:.1f} and on Yelp {:.1f} times".format(*others),
    ]


@traces(TUNED, "`iid`, the paper's baseline")
def pointwise() -> list[str]:
    own = {name: boards()[name]["iid"] for name in boards()}
    assert [name for name in own if own[name].is_cut] == ["yelp"]
    cite, anime, plots, yelp = (own[name].share for name in ("cite", "anime", "plots", "yelp"))
    ends = f"{anime:.3f} on anime and {plots:.3f} on plots; on Yelp it was ended at {yelp:.3f}"
    return [f"to {cite:.3f} of the best on CiteULike, {ends}"]


@traces(TUNED, "The best of these")
def best_pointwise() -> list[str]:
    names = [name for name, (_, losses) in board.CONTESTANTS.items() if losses == board.POINTWISE]
    found = {at: max((own[name].share, name) for name in names) for at, own in boards().items()}
    assert {at: name for at, (_, name) in found.items()} == {
        "anime": "strat-all",
        "cite": "strat-ns, pointwise",
        "plots": "strat-ns, pointwise",
        "yelp": "ns, pointwise",
    }
    cite, plots, anime, yelp = (
        f"{found[name][0]:.3f}" for name in ("cite", "plots", "anime", "yelp")
    )
    return [
        f"`strat-ns`, with {cite} on CiteULike and {plots} on plots",
        f"`strat-all`, with {anime} on anime",
        f"`ns`, with {yelp} on Yelp",
    ]


@traces(TUNED, "The 32 hardest")
def hard_negatives() -> list[str]:
    for name, plain in (("ns, 32 hardest", "ns"), ("neg, 200 mined", "neg"), ("xbm", "ns")):
        for own in boards().values():
            for own_time, plain_time in zip(own[name].seconds, own[plain].seconds, strict=True):
                assert own_time >= plain_time
            assert own[name].share < own[plain].share
    hardest, mined = (
        board.CONTESTANTS[name][0][setting]
        for name, setting in (("ns, 32 hardest", "hardest"), ("neg, 200 mined", "mined"))
    )
    return [f"The {hardest} hardest of a batch, {mined} mined ones"]


@traces(TUNED, "*Ridge regression*")
def ridge() -> list[str]:
    assert [name for name, own in boards().items() if own["ridge"].seconds[0] < math.inf] == [
        "cite"
    ]
    at = f"to {board.SHARES[0]} on CiteULike after {boards()['cite']['ridge'].seconds[0]:.1f} s"
    return [at, f"on the {word(len(boards()) - 1)} other sets"]


@traces(DEAR, "Nine of these ways")
def dear_ways() -> list[str]:
    kept = [
        reference.read(board.BOARD / f"{name}-with-plain.json.gz") for name in ("anime", "cite")
    ]
    trials = [trial for own in kept for trial in own["trials"]]
    assert {own["environment"]["cores"] for own in kept} == {1}
    named = {trial["contestant"] for trial in trials}
    assert {own[each].trials for own in dear() for each in named} == {board.TUNED}
    assert {trial["config"]["convolution"] for trial in trials} == {"plain"}
    longest = max(trial["seconds"][-1] for trial in trials)
    return [
        f"{word(len(named)).capitalize()} of these ways",
        f"{word(board.TUNED)} trials",
        f"{longest:.0f} s",
    ]


DEARS = ["", *dict.fromkeys(board.beside_each_other(boards("plain")).standings[0.9])]
traces_rows(DEAR, DEARS)(partial(board_rows, 0, "plain"))
traces_rows(DEAR, DEARS)(partial(board_rows, 1, "plain"))


def level_of_dear(share: float) -> list[set[str]]:
    """Return what is level with `strat-ns`, which is soonest of what trains, or level with it."""
    found, at = [], board.SHARES.index(share)
    for of in dear():
        own = {name: each for name, each in of.items() if name in board.CONTESTANTS}
        first = min(own, key=lambda name: own[name].seconds[at])
        assert is_level(own["strat-ns"], own[first], share)
        reached = {name: each for name, each in own.items() if each.seconds[at] < math.inf}
        found.append(
            {name for name, each in reached.items() if is_level(own["strat-ns"], each, share)}
        )
    return found


@traces(DEAR, "To 0.9 `strat-ns` is the soonest")
def soonest_of_dear() -> list[str]:
    cite, anime = level_of_dear(0.9)
    assert cite == {"strat-ns", "ns-distinct", "ns, usual logQ"}
    assert anime == {"strat-ns", "ns-distinct", "mixed-ns"}
    return ["To 0.9"]


@traces(DEAR, "To 0.97 `ns`, with either")
def second_of_dear() -> list[str]:
    cite, anime = level_of_dear(0.97)
    assert cite == {"strat-ns", "ns", "ns, usual logQ"}
    reached = {name for name, own in dear()[1].items() if own.seconds[1] < math.inf}
    assert reached & {*board.CONTESTANTS} == anime == {"strat-ns"}
    return ["To 0.97"]


@traces(DEAR, "Samplers that share no negatives")
def iterations_of_dear() -> list[str]:
    kept = reference.read(board.BOARD / "cite-with-plain.json.gz")["trials"]

    def seconds(name: str) -> float:
        own = (trial for trial in kept if trial["contestant"] == name)
        return float(max(own, key=reference.best)["iteration_seconds"])

    return [
        f"`neg` takes {seconds('neg'):.2f} s and one of `iid` {seconds('iid'):.2f}",
        f"one of `strat-ns` takes {seconds('strat-ns'):.3f}",
    ]


@traces(DEAR, "They come to 0.9 on neither set")
def never_of_dear() -> list[str]:
    assert all(math.isinf(own[name].seconds[0]) for own in dear() for name in ("neg", "iid"))
    return ["come to 0.9"]


@traces(DEAR, "With a pointwise loss")
def loss_of_dear() -> list[str]:
    cite, anime = dear()
    assert math.isinf(anime["strat-ns, pointwise"].seconds[0])
    ratio = cite["strat-ns, pointwise"].seconds[0] / cite["strat-ns"].seconds[0]
    return [f"comes to 0.9 on CiteULike after {ratio:.1f} times as long"]


@traces(DEAR, "Ridge regression has 0.97")
def floors_of_dear() -> list[str]:
    for own in dear():
        assert max(own, key=lambda each: own[each].test or 0) == "ridge"
    cite, anime = dear()
    return [
        f"has 0.97 after {cite['ridge'].seconds[1]:.1f} s on CiteULike",
        f"{anime['ridge'].seconds[1]:.2f} s on anime",
        f"have 0.9 after {cite['profile'].seconds[0]:.2f} s",
    ]
