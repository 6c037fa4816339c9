"""Claims of docs/results.md on ways to build batches, computed from the kept boards."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

import board
import search_reference as reference
from claims_readme import GOOD, good_start, one_core
from claims_results import PAGE, one_seed
from traced import Section, traces, traces_rows, word

from ncfbench.reporting.render import markdown
from ncfbench.timing.ranking import ONE_SEED_FACTOR

TUNED = Section(PAGE, "Ways to build batches, eight trials each", "python benchmarks/board.py")
KNOWN = Section(PAGE, "Known items, by time", "python benchmarks/board.py")
DEAR = Section(PAGE, "Where items are dear", "python benchmarks/board.py")


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
        name: {each for each, own in standings.items() if own[at] and own[at].is_tied}
        for at, name in enumerate(boards())
    }


def board_rows(table: int, family: str = "") -> list[str]:
    return markdown.render([board.boards_tables(boards(family))[table]]).splitlines()


CONTESTANTS = ["", *board.CONTESTANTS, "ridge", "profile"]
traces_rows(TUNED, CONTESTANTS)(partial(board_rows, 0))
traces_rows(TUNED, CONTESTANTS)(partial(board_rows, 1))


@traces(TUNED, "Sixteen ways")
def ways() -> list[str]:
    present = [own[each] for own in boards().values() for each in board.CONTESTANTS if each in own]
    assert {each.trials for each in present} == {board.TUNED}
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
    assert one_core(own["environment"] for own in kept)
    longest = max(trial["seconds"][-1] for own in kept for trial in own["trials"])
    assert board.HOPELESS == (0.5, 0.5)
    return [
        f"for {longest:.0f} s at most",
        "from half of that on they end if they have less than half",
    ]


@traces(TUNED, "But there what is pointwise")
def dimensions_on_debian() -> list[str]:
    trials = reference.read(board.BOARD / "debian.json.gz")["trials"]

    def dimension(is_usual: bool) -> int:
        ranking = (
            each["config"]["dimension"]
            for each in trials
            if board.CONTESTANTS[each["contestant"]][1] != board.POINTWISE
            and is_usual == (each["contestant"] == "ns, usual logQ")
        )
        (found,) = {*ranking}
        return int(found)

    assert dimension(is_usual=True) == 2 * dimension(is_usual=False)
    return ["twice the dimensions"]


@traces(TUNED, "The eight trials of a way")
def tuning_time() -> list[str]:
    minutes = [
        sum(each["wall_seconds"] for each in own["trials"] if each["contestant"] == name) / 60
        for own in (reference.read(board.BOARD / f"{name}.json.gz") for name in boards())
        for name in {each["contestant"] for each in own["trials"]}
    ]
    return [f"{word(board.TUNED)} trials", f"took {min(minutes):.1f} to {max(minutes):.1f} minutes"]


@traces(TUNED, "On Debian `ns-distinct`")
def distinct_on_debian() -> list[str]:
    assert [name for name, own in boards().items() if "ns-distinct" not in own] == ["debian"]
    return [f"{min(board.SMALL)} links"]


@traces(TUNED, "[Floors]")
def cores_of_floors() -> list[str]:
    paths = board.FLOORS.parent.glob("*/environment.json")
    assert one_core(json.loads(path.read_text()) for path in paths)
    return ["seconds of one fit"]


@traces(TUNED, "Models are those of the best trials")
def models() -> list[str]:
    pointwise = {
        name for name, (_, losses) in board.CONTESTANTS.items() if losses == board.POINTWISE
    }
    found: dict[str, set[str]] = {}
    for name in boards():
        trials = reference.read(board.BOARD / f"{name}.json.gz")["trials"]
        for trial in trials:
            tower = trial["config"]["user_tower"]
            is_pointwise = trial["contestant"] in pointwise
            has_table = not is_pointwise if name == "debian" else is_pointwise
            has_table &= name in ("anime", "cite", "debian")
            assert tower == ("table" if has_table else "history")
            found.setdefault(name, set()).add(trial["config"]["encoder"])
    assert found.pop("plots") == {"cnn"}
    assert found.pop("debian") == {"mlp"}
    assert {*map(frozenset, found.values())} == {frozenset({"bow"})}
    return []


@traces(TUNED, "One seed: times")
def one_seed_of_boards() -> list[str]:
    titles = ("anime", "CiteULike, `good`", "Debian's packages", "MovieLens with plots", "Yelp")
    errors = [f"{good_start()[title].arms[0].chosen.error:.3f}" for title in titles]
    names = ("anime", "CiteULike", "Debian", "plots", "Yelp")
    more = f"(on anime [{max(between_seeds('anime').values()):.1f}]"
    return [*one_seed(), more, *(f"{of} on {name}" for of, name in zip(errors, names, strict=True))]


@traces(TUNED, "*`strat-ns` with a ranking loss is never clearly behind")
def soonest_to_first() -> list[str]:
    assert set.intersection(*soonest(0.9).values()) == {"strat-ns"}
    return ["to 0.9."]


@traces(TUNED, "It is first on plots")
def first_on_plots() -> list[str]:
    assert soonest(0.9)["plots"] == {"strat-ns"}
    plots = boards()["plots"]
    second = sorted(plots, key=lambda each: plots[each].seconds[0])[1]
    assert second == "ns, usual logQ"
    ratio = plots[second].seconds[0] / plots["strat-ns"].seconds[0]
    return [f"takes {ratio:.1f} times as long"]


@traces(TUNED, "It is level with two others")
def level_on_others() -> list[str]:
    names = ("anime", "cite", "yelp", "debian")
    anime, cite, yelp, debian = (word(len(soonest(0.9)[name]) - 1) for name in names)
    return [
        f"with {anime} others on anime, with {cite} on CiteULike, with {yelp} on Yelp and with"
        f" {debian} on Debian"
    ]


@traces(TUNED, "*To 0.97 no way is first everywhere")
def at_second() -> list[str]:
    assert not set.intersection(*soonest(0.97).values())
    return ["To 0.97 no way"]


@traces(TUNED, "On CiteULike and Debian `strat-ns` and `ns`, with either logQ correction, are")
@traces(TUNED, "On Yelp `ns`, `strat-ns`, `ns-distinct` and `mixed-ns` are")
@traces(TUNED, "On anime `strat-ns` ends just below")
@traces(TUNED, "On plots nobody does in this time")
def soonest_to_second() -> list[str]:
    assert soonest(0.97) == {
        "cite": {"strat-ns", "ns", "ns, usual logQ"},
        "anime": {"ns-distinct", "mixed-ns"},
        "debian": {"strat-ns", "ns", "ns, usual logQ"},
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
        f"ended at {boards()['debian']['neg'].share:.2f}",
    ]


@traces(TUNED, "`iid`, the paper's baseline")
def pointwise() -> list[str]:
    own = {name: boards()[name]["iid"] for name in boards()}
    assert [name for name in own if own[name].is_cut] == ["debian", "yelp"]
    at = {name: f"{each.share:.3f}" for name, each in own.items()}
    ended = f"it was ended at {at['yelp']} on Yelp and at {at['debian']} on Debian"
    ends = f"{at['anime']} on anime and {at['plots']} on plots; {ended}"
    return [f"to {at['cite']} of the best on CiteULike, {ends}"]


@traces(TUNED, "The best of these")
def best_pointwise() -> list[str]:
    names = [name for name, (_, losses) in board.CONTESTANTS.items() if losses == board.POINTWISE]
    found = {at: max((own[name].share, name) for name in names) for at, own in boards().items()}
    assert {at: name for at, (_, name) in found.items()} == {
        "anime": "strat-all",
        "cite": "strat-ns, pointwise",
        "debian": "strat-ns, pointwise",
        "plots": "strat-ns, pointwise",
        "yelp": "ns, pointwise",
    }
    best = {name: f"{share:.3f}" for name, (share, _) in found.items()}
    return [
        f"`strat-ns`, with {best['cite']} on CiteULike, {best['plots']} on plots and"
        f" {best['debian']} on Debian",
        f"`strat-all`, with {best['anime']} on anime",
        f"`ns`, with {best['yelp']} on Yelp",
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


SEEDS = Section(PAGE, "A second seed", "python benchmarks/board.py")


@cache
def repeated() -> Mapping[str, Mapping[str, board.Standing]]:
    return board.repeated_boards("seed-1")


def between_seeds(name: str) -> dict[str, float]:
    """Return by what factor the times of each contestant to the first target differ."""
    one, other = repeated()[name], repeated()[f"{name}, seed-1"]
    pairs = {
        each: (one[each].seconds[0], other[each].seconds[0])
        for each in one
        if each in board.CONTESTANTS
    }
    return {each: max(pair) / min(pair) for each, pair in pairs.items()}


def first_three(of: Mapping[str, board.Standing]) -> list[str]:
    """Return the three contestants that are soonest to the first target."""
    trained = (name for name in of if name in board.CONTESTANTS)
    return sorted(trained, key=lambda name: of[name].seconds)[:3]


def repeated_rows() -> list[str]:
    return markdown.render([board.boards_tables(repeated())[0]]).splitlines()


traces_rows(SEEDS, ["", *dict.fromkeys(name for of in repeated().values() for name in of)])(
    repeated_rows
)


def settings(trials: Iterable[Mapping[str, Any]], contestants: Iterable[str]) -> list[str]:
    """Return the settings of some contestants' trials but the seed, as texts."""
    own = (each["config"] for each in trials if each["contestant"] in {*contestants})
    return sorted(json.dumps(config | {"seed": 0}, sort_keys=True) for config in own)


@traces(SEEDS, "Six ways")
def repeated_ways() -> list[str]:
    for name in ("anime", "cite"):
        path = board.BOARD / f"{name}-with-seed-1.json.gz"
        kept, first = reference.read(path), reference.read(board.BOARD / f"{name}.json.gz")
        counts = Counter(each["contestant"] for each in kept["trials"])
        assert {*counts.values()} == {board.TUNED}
        assert len(counts) == 6

        assert settings(kept["trials"], counts) == settings(first["trials"], counts)
        assert {each["config"]["seed"] for each in kept["trials"]} == {1}
        ends = [datetime.fromisoformat(each["environment"]["time"]) for each in (first, kept)]
        assert ends[0].date() == ends[1].date()
        assert ends[1] - ends[0] > timedelta(hours=7)
    shares = " and ".join(map(str, board.SHARES))
    return ["Six ways", "seven hours", "eight trials", f"to {shares} of the same recalls"]


@traces(SEEDS, "*On CiteULike the first three")
def same_order() -> list[str]:
    for name in ("cite", "cite, seed-1"):
        assert first_three(repeated()[name]) == ["strat-ns", "ns", "ns, usual logQ"]
    return ["first three to 0.9"]


@traces(SEEDS, "*On anime two of the first three are the same*")
def same_of_anime() -> list[str]:
    one, other = (first_three(repeated()[name]) for name in ("anime", "anime, seed-1"))
    assert {*one} & {*other} == {"mixed-ns", "strat-ns"}
    return [f"{word(len({*one} & {*other}))} of the first three"]


@traces(SEEDS, "The third is")
def third_of_anime() -> list[str]:
    one, other = (first_three(repeated()[name]) for name in ("anime", "anime, seed-1"))
    assert {*one} - {*other} == {"neg"}
    assert {*other} - {*one} == {"ns, usual logQ"}
    return ["The third"]


@traces(SEEDS, "*A factor of 1.3 is too narrow")
def too_narrow() -> list[str]:
    return [f"A factor of {ONE_SEED_FACTOR:.1f}"]


@traces(SEEDS, "There three of six times")
def differing_times() -> list[str]:
    anime = between_seeds("anime")
    assert max(between_seeds("cite").values()) < ONE_SEED_FACTOR
    apart = [name for name, ratio in anime.items() if ratio > ONE_SEED_FACTOR]
    assert max(anime, key=lambda name: anime[name]) == "ns"
    return [
        f"{word(len(apart))} of {word(len(anime))} times differ",
        f"by {anime['ns']:.2f}",
    ]


def known() -> Mapping[str, board.Standing]:
    (own,) = boards("known").values()
    return own


def known_rows() -> list[str]:
    return markdown.render([board.board_table("ml-time", known())]).splitlines()


traces_rows(KNOWN, ["", *CONTESTANTS[1:], "ease", "ials", "popularity"])(known_rows)


@traces(KNOWN, "The same ways on MovieLens by time")
def trials_of_known() -> list[str]:
    kept = reference.read(board.BOARD / "ml-time-with-known.json.gz")
    assert {each["config"]["encoder"] for each in kept["trials"]} == {"cnn"}
    counts = {name: known()[name].trials for name in board.CONTESTANTS}
    fewer = counts.pop("ns-distinct")
    assert {*counts.values()} == {board.TUNED}
    return [f"with {word(board.TUNED)} trials each", f"{word(fewer)} of `ns-distinct`"]


@traces(KNOWN, "The best known is")
def best_of_known() -> list[str]:
    assert max(own.share for own in known().values()) < 1
    return []


@cache
def floors_of_known() -> Mapping[str, Mapping[str, Any]]:
    kept = reference.read(board.BOARD / "ml-time-with-known.json.gz")
    return {row["floor"]: row for row in board.kept_floors(kept["fingerprint"])}


@traces(KNOWN, "EASE's recall of validation links")
def error_of_known() -> list[str]:
    error = floors_of_known()["ease"]["validation_recall_at_50_error"]
    assert error > 0.1 * known()["ease"].top
    return [f"error of {error:.3f}, more than a tenth", f"times to {board.SHARES[0]} of that"]


@traces(KNOWN, "By test links EASE has")
def tests_of_known() -> list[str]:
    ease, ials = (known()[name] for name in ("ease", "ials"))
    trained = max((known()[name] for name in board.CONTESTANTS), key=lambda own: own.share)
    at = f"EASE has {ease.test:.3f} after {ease.seconds[0]:.2f} s and iALS {ials.test:.3f}"
    return [at, f"has {trained.test:.3f}"]


@traces(KNOWN, "The standard error of these")
def test_error_of_known() -> list[str]:
    (title,) = (title for title in GOOD if title.startswith("MovieLens 100K by time"))
    errors = {answer.error for answer in good_start()[title].floors[:2]}
    errors.add(good_start()[title].arms[0].chosen.error)
    (shown,) = {f"{error:.2f}" for error in errors}
    return [shown]


@traces(KNOWN, "*Pointwise losses are behind popularity*")
def pointwise_of_known() -> list[str]:
    least = known()["popularity"]
    for name, (_, losses) in board.CONTESTANTS.items():
        if losses == board.POINTWISE:
            assert known()[name].share < least.share
            assert known()[name].test < least.test
    return []


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
