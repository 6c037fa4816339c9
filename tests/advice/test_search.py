"""The space of a search, who races first, and what a choice is worth."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_reference import random_points

from ncfbench.advice.search import PROBE_LINKS, Search
from ncfbench.advice.space import Space
from ncfbench.catalog import all_settings, find_loss, find_sampler, serves
from ncfbench.catalog.presets import PORTFOLIO
from ncfbench.config import complete
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.reporting.arms import Arm, rank_soonest
from ncfbench.statistics.curves import Curve
from ncfbench.statistics.ranking import NEAR, SHARE
from ncfbench.statistics.seeds import Curves, times_to_level


def space(dataset, fixed=None, **given):
    return Space.of(dataset, {"dataset": "tiny"} | (fixed or {}), given)


def test_settings_declare_what_is_tried(tiny):
    """All that is tried is declared by a setting, without what the data cannot serve."""
    found = space(tiny).tried
    declared = {name: each.tried for name, each in all_settings().items() if each.tried}
    assert found.keys() <= declared.keys()
    assert found["encoder"] == ("bow", "cnn"), "no features, and items that are held out"
    assert declared.keys() - found.keys() == {"features"}
    assert found["learning_rate"] == declared["learning_rate"]
    for name, values in declared.items():
        numbers = [value for value in values if not isinstance(value, str)]
        assert numbers == sorted(numbers), f"neighbours of {name} stand side by side"


def test_features_let_their_encoder_race(featured):
    found = space(featured).tried
    assert found["encoder"] == ("bow", "mlp", "cnn")
    assert found["features"] == ("add", "ignore")
    assert set(found["history_of"]) == {"ids", "content", "both"}


def test_what_is_fixed_is_not_tried(tiny):
    found = space(tiny, {"dimension": 7}, loss=("log",))
    assert "dimension" not in found.tried
    for config in itertools.islice(random_points(found, 0), 20):
        assert (config.dimension, config.loss) == (7, "log")


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000))
def test_points_are_possible_and_neighbours_differ_in_one_setting(tiny, seed):
    found = space(tiny)
    config = next(random_points(found, seed))
    assert serves(find_sampler(config.sampler), find_loss(config.loss))
    point = found.point(config)
    assert all(point[name] in found.tried[name] for name in point)
    assert all(config.reads(config.settings[name]) for name in point)
    for near in found.neighbours(config):
        other = found.point(near)
        common = point.keys() & other.keys()
        differing = [name for name in common if point[name] != other[name]]
        assert len(differing) == 1
        (name,) = differing
        values = found.tried[name]
        if not isinstance(point[name], str | bool):
            assert abs(values.index(point[name]) - values.index(other[name])) == 1
        # What only one of them reads is at its default in the other.
        for own in other.keys() - point.keys():
            assert near.settings[own].default in (None, other[own])


def test_words_are_as_long_as_vectors(tiny):
    config = space(tiny).config({"encoder": "bow", "dimension": 300})
    assert config.word_dimension == 300
    config = space(tiny, {"word_dimension": 20}).config({"encoder": "bow", "dimension": 300})
    assert config.word_dimension == 20


def test_random_points_are_distinct_and_repeatable(tiny):
    first, again = ([*itertools.islice(random_points(space(tiny), 3), 50)] for _ in range(2))
    assert first == again
    assert len(set(first)) == 50


def test_a_race_begins_with_the_portfolio(featured):
    """All that the data can serve, in its order, each as it was measured."""
    space_of = space(featured)
    field = Search(space_of).first_field()
    assert [each.name for each in field] == [
        "bow softmax strat-ns",
        "cnn softmax strat-ns",
        "bow softmax ns",
        "cnn softmax ns",
        "mlp log strat-ns",
        "bow softmax strat-ns (larger batches)",
        "bow softmax strat-ns (wider bag)",
    ]
    found = [each.config for each in field]
    for config, wanted in zip(found, PORTFOLIO.values(), strict=True):
        assert config.probe_links == PROBE_LINKS
        point, tried = space_of.point(config), space_of.tried
        for name, value in wanted.items():
            if name in point and value in tried[name]:
                assert point[name] == value, name
    assert found[0].loss == "softmax"
    assert found[0].user_tower == "history"


@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_member_without_its_own_settings_has_no_name(featured, is_fixed):
    """Larger batches are none where the question says how large batches are."""
    given = {} if is_fixed else {"batch_size": (256, 512)}
    found = Search(space(featured, {"batch_size": 512} if is_fixed else {}, **given), given)
    names = [each.name for each in found.first_field()]
    assert not any("larger batches" in name for name in names)
    assert "bow softmax strat-ns (wider bag)" not in names
    assert len(set(names)) == len(names)


def test_a_portfolio_without_its_encoders(tiny):
    """Items without dense features have no layer on them; another encoder takes their place."""
    found = [each.config for each in Search(space(tiny)).first_field()]
    assert {config.encoder for config in found} == {"bow", "cnn"}
    assert len(found) == sum(each["encoder"] != "mlp" for each in PORTFOLIO.values())
    tried = {"encoder": ("lstm",)}
    found = [each.config for each in Search(space(tiny, **tried), tried).first_field()]
    assert {config.encoder for config in found} == {"lstm"}
    assert len(found) > 3
    assert {config.sampler for config in found} == {"strat-ns", "ns"}


@pytest.mark.parametrize("fixed", [{}, {"user_tower": "history"}, {"history_of": "ids"}])
def test_content_serves_every_member(featured, fixed):
    """Also where the user tower is given, and the histories of a member read features."""
    search = Search(space(featured, fixed))
    content = DeviceContent.of(featured, search.readers())
    for arm in search.first_field():
        if arm.config.reads_history_features:
            assert content.histories.sums is not None, arm.name


def test_values_that_are_asked_for_race_at_once(featured):
    """Each in place of the first member's, before the rest of the portfolio."""
    tried = {"loss": ("softmax", "log", "hinge"), "dimension": (20, 40, 80)}
    field = Search(space(featured, **tried), tried).first_field()
    first, *others = [each.config for each in field]
    assert (first.loss, first.dimension) == ("softmax", 80)
    asked = [(config.loss, config.dimension) for config in others[:4]]
    assert {*asked} == {("log", 80), ("hinge", 80), ("softmax", 40), ("softmax", 20)}
    assert all(config.dimension in tried["dimension"] for config in others)


@pytest.mark.parametrize(
    ("name", "values", "nearest"),
    [
        ("learning_rate", (0.2, 0.1), 0.1),
        ("learning_rate", (0.0001, 0.01), 0.01),
        ("weight_decay", (0.1, 0.0), 0.0),
        ("batch_size", (16, 32), 32),
        ("dimension", (20, 30), 30),
        ("gamma", (1.0, 10.0), 10.0),
    ],
)
def test_a_search_begins_with_given_values(tiny, name, values, nearest):
    """Nothing else is tried, and the one nearest to the usual value first."""
    search = Search(space(tiny, **{name: values}), [name])
    assert getattr(search.start, name) == nearest
    configs = [each.config for each in search.first_field()]
    reading = [config for config in configs if name in search.space.names(config)]
    assert len(reading) > 2
    assert all(getattr(config, name) in values for config in reading)


def test_batches_fit_into_few_links(tiny):
    few = replace(tiny, users=tiny.users[:125], items=tiny.items[:125])
    assert few.graph.n_links < 128
    assert Search(space(few)).start.batch_size == 64


def test_a_question_may_leave_no_preset(tiny):
    search = Search(space(tiny, loss=("hinge",), sampler=("ns", "iid")))
    assert search.start.loss == "hinge"
    assert search.start.sampler == "ns"
    with pytest.raises(UsageError, match=r"Nothing of this can work\."):
        Search(space(tiny, loss=("hinge",), sampler=("iid",)))


def test_neighbours_enter_once(tiny):
    search = Search(space(tiny))
    field = search.first_field()
    begun = {each.name for each in field}
    near = search.neighbours(field[0].config, begun)
    names = begun | {each.name for each in near}
    assert len(names) == len(begun) + len(near)
    assert near[0].name.startswith("bow softmax strat-ns lr=")
    wider = next(each for each in field if each.name.endswith("(wider bag)"))
    others = search.neighbours(wider.config, names)
    assert others[0].name.startswith("bow softmax strat-ns (wider bag) lr=")


def runs(values, seconds=1.0, features=0.0):
    """A curve of recalls, one in so many seconds."""
    losses = [-value for value in values]
    return Curves({0: Curve(range(len(values)), losses, seconds)}, 0.0, features)


def ranked(found, **statuses):
    arms = [
        Arm(
            name=name,
            config=complete({}),
            runs={},
            measured=own,
            learned_at=0.0,
            status=statuses.get(name, "tied"),
        )
        for name, own in found.items()
    ]
    return rank_soonest(arms)


def soonest(found, **statuses):
    """The recommended one of some arms, and the level that decides."""
    arms, level = ranked(found, **statuses)
    return next(((arm.name, level) for arm in arms if arm.status == "recommended"), None)


def test_the_soonest_of_the_best_is_recommended():
    """By plain arithmetic: near the best one, and first at its share."""
    high, low = runs([0.0, 0.5, 0.6]), runs([0.0, 0.55, 0.56], 0.1)
    found = {"high": high, "low": low}
    assert soonest(found) == ("high", -0.6 * SHARE), "low ends too low, however soon"
    near = runs([0.0, 0.6 * NEAR], 0.5)
    assert soonest(found | {"near": near}) == ("near", -0.6 * SHARE)
    waits = replace(near, feature_seconds=10.0)
    assert soonest(found | {"near": waits}) == ("high", -0.6 * SHARE)
    assert soonest({}) is None
    assert soonest({"none": Curves({})}) is None
    unable = {"low": Curves({}), "high": high}
    assert soonest(unable | {"left": near}, left="left") == ("left", -0.6 * SHARE)
    assert soonest(unable | {"failed": near}, failed="failed") == ("high", -0.6 * SHARE)


def test_one_that_is_sooner_and_ends_lower_is_no_tie():
    """2 % below the best: at 0.95 of it in a fifth of the time, in nearly as long, or later."""
    found = {"best": runs([0.0, 0.5, 0.6])}
    for name, seconds in (("sooner", 0.2), ("alike", 1.9), ("later", 9.0)):
        found[name] = runs([0.0, 0.588], seconds)
    statuses = {arm.name: arm.status for arm in ranked(found)[0]}
    assert statuses == {
        "best": "recommended",
        "sooner": "lower",
        "alike": "tied",
        "later": "slower",
    }


def test_times_to_a_level_count_features():
    one, other = runs([0.0, 1.0], 2.0), runs([0.0, 1.0], 1.0, features=5.0)
    ratio = times_to_level(one, other, -0.5)
    assert ratio is not None
    assert ratio.value == pytest.approx((5 + 0.5) / 1)
    assert times_to_level(one, runs([0.0, 0.4]), -0.5) is None
    known = runs([0.6, 0.9])  # by chance alone
    together = times_to_level(known, known, -0.5)
    assert together is not None
    assert together.value == 1
    assert times_to_level(known, one, -0.5) is None
    assert one.times_to(-0.5) == {0: pytest.approx(1.0)}
    assert np.isclose(ratio.lower * ratio.upper, ratio.value**2)
