"""The space of a search, who races first, and what a choice is worth."""

import itertools
from dataclasses import replace

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


def first_field(space, asked=()):
    return Search(space, asked).first_field()


def test_settings_declare_what_is_tried(tiny, featured):
    tried = space(tiny).tried
    declared = {name: setting.tried for name, setting in all_settings().items() if setting.tried}
    assert declared.keys() - tried.keys() == {"features"}
    assert tried.keys() <= declared.keys()
    assert tried["encoder"] == ("bow", "cnn"), "no features, and items that are held out"
    assert tried["learning_rate"] == declared["learning_rate"]
    for name, values in declared.items():
        numbers = [value for value in values if not isinstance(value, str)]
        assert numbers == sorted(numbers), f"neighbours of {name} stand side by side"
    more = space(featured).tried
    assert (more["encoder"], more["features"]) == (("bow", "mlp", "cnn"), ("add", "ignore"))
    assert set(more["history_of"]) == {"ids", "content", "both"}


def test_what_is_fixed_is_not_tried(tiny):
    """Words are as long as vectors, unless they have a length."""
    fixed = space(tiny, {"dimension": 7}, loss=("log",))
    assert "dimension" not in fixed.tried
    configs, again = ([*itertools.islice(random_points(fixed, 0), 20)] for _ in range(2))
    assert {(config.dimension, config.loss) for config in configs} == {(7, "log")}
    assert configs == again
    for more, length in (({}, 300), ({"word_dimension": 20}, 20)):
        config = space(tiny, more).config({"encoder": "bow", "dimension": 300})
        assert config.word_dimension == length


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000))
def test_points_are_possible_and_neighbours_differ_in_one_setting(tiny, seed):
    all_points = space(tiny)
    config = next(random_points(all_points, seed))
    assert serves(find_sampler(config.sampler), find_loss(config.loss))
    point = all_points.point(config)
    assert all(point[name] in all_points.tried[name] for name in point)
    assert all(config.reads(config.settings[name]) for name in point)
    for near in all_points.neighbours(config):
        other = all_points.point(near)
        (name,) = (name for name in point.keys() & other.keys() if point[name] != other[name])
        values = all_points.tried[name]
        if not isinstance(point[name], str | bool):
            assert abs(values.index(point[name]) - values.index(other[name])) == 1
        # What only one of them reads is at its default in the other.
        for new in other.keys() - point.keys():
            assert near.settings[new].default in (None, other[new])


def test_a_race_begins_with_the_portfolio(featured):
    space_of = space(featured)
    field = first_field(space_of)
    models = ("bow softmax strat-ns", "cnn softmax strat-ns", "bow softmax ns", "cnn softmax ns")
    models += "mlp log strat-ns", f"{models[0]} (larger batches)", f"{models[0]} (wider bag)"
    assert [arm.name for arm in field] == [*models]
    assert (field[0].config.loss, field[0].config.user_tower) == ("softmax", "history")
    for arm, wanted in zip(field, PORTFOLIO.values(), strict=True):
        assert arm.config.probe_links == PROBE_LINKS
        for name, value in space_of.point(arm.config).items():
            if name in wanted and wanted[name] in space_of.tried[name]:
                assert value == wanted[name], name


@pytest.mark.parametrize(
    ("fixed", "given"), [({"batch_size": 512}, {}), ({}, {"batch_size": (256, 512)})]
)
def test_a_member_without_its_own_settings_has_no_name(featured, fixed, given):
    names = [arm.name for arm in first_field(space(featured, fixed, **given), given)]
    assert not any("larger batches" in name for name in names)
    assert "bow softmax strat-ns (wider bag)" not in names
    assert len(set(names)) == len(names)


def test_a_portfolio_without_its_encoders(tiny):
    configs = [arm.config for arm in first_field(space(tiny))]
    assert {config.encoder for config in configs} == {"bow", "cnn"}
    assert len(configs) == sum(member["encoder"] != "mlp" for member in PORTFOLIO.values())
    tried = {"encoder": ("lstm",)}
    configs = [arm.config for arm in first_field(space(tiny, **tried), tried)]
    assert {config.encoder for config in configs} == {"lstm"}
    assert len(configs) > 3
    assert {config.sampler for config in configs} == {"strat-ns", "ns"}


@pytest.mark.parametrize("fixed", [{}, {"user_tower": "history"}, {"history_of": "ids"}])
def test_content_serves_every_member(featured, fixed):
    search = Search(space(featured, fixed))
    content = DeviceContent.of(featured, search.readers())
    for arm in search.first_field():
        if arm.config.reads_history_features:
            assert content.histories.sums is not None, arm.name


def test_values_that_are_asked_for_race_at_once(featured):
    tried = {"loss": ("softmax", "log", "hinge"), "dimension": (20, 40, 80)}
    configs = [arm.config for arm in first_field(space(featured, **tried), tried)]
    first, *asked = [(config.loss, config.dimension) for config in configs[:5]]
    assert first == ("softmax", 80)
    assert {*asked} == {("log", 80), ("hinge", 80), ("softmax", 40), ("softmax", 20)}
    assert all(config.dimension in tried["dimension"] for config in configs)


@pytest.mark.parametrize(
    ("name", "values", "nearest"),
    [
        ("learning_rate", (0.0001, 0.01), 0.01),
        ("weight_decay", (0.1, 0.0), 0.0),
        ("batch_size", (16, 32), 32),
    ],
)
def test_a_search_begins_with_given_values(tiny, name, values, nearest):
    search = Search(space(tiny, **{name: values}), [name])
    assert getattr(search.start, name) == nearest
    configs = [arm.config for arm in search.first_field()]
    reading = [config for config in configs if name in search.space.names(config)]
    assert len(reading) > 2
    assert all(getattr(config, name) in values for config in reading)


def test_a_search_starts_where_it_can(tiny):
    start = Search(space(tiny, loss=("hinge",), sampler=("ns", "iid"))).start
    assert (start.loss, start.sampler) == ("hinge", "ns")
    with pytest.raises(UsageError, match=r"Nothing of this can work\."):
        Search(space(tiny, loss=("hinge",), sampler=("iid",)))
    few = replace(tiny, users=tiny.users[:125], items=tiny.items[:125])
    assert few.graph.n_links < 128
    assert Search(space(few)).start.batch_size == 64


def test_neighbours_enter_once(tiny):
    search = Search(space(tiny))
    field = search.first_field()
    begun = {arm.name for arm in field}
    near = search.neighbours(field[0].config, begun)
    names = begun | {arm.name for arm in near}
    assert len(names) == len(begun) + len(near)
    assert near[0].name.startswith("bow softmax strat-ns lr=")
    wider = next(arm for arm in field if arm.name.endswith("(wider bag)"))
    more = search.neighbours(wider.config, names)
    assert more[0].name.startswith("bow softmax strat-ns (wider bag) lr=")


def curve(values, seconds=1.0, features=0.0):
    losses = [-value for value in values]
    return Curves({0: Curve(range(len(values)), losses, seconds)}, 0.0, features)


def ranked(curves, **statuses):
    common = {"config": complete({}), "runs": {}, "learned_at": 0.0}
    arms = [
        Arm(name=name, measured=measured, status=statuses.get(name, "tied"), **common)
        for name, measured in curves.items()
    ]
    ranked_arms, level = rank_soonest(arms)
    return {arm.name: arm.status for arm in ranked_arms}, level


def test_the_soonest_of_the_best_is_recommended():
    """By plain arithmetic: near the best one, and first at its share."""
    high, low = curve([0.0, 0.5, 0.6]), curve([0.0, 0.55, 0.56], 0.1)
    near = curve([0.0, 0.6 * NEAR], 0.5)
    unable = {"low": Curves({}), "high": high}
    for curves, more, name in (
        ({"high": high, "low": low}, {}, "high"),  # low ends too low, however soon
        ({"high": high, "low": low, "near": near}, {}, "near"),
        ({"high": high, "near": replace(near, feature_seconds=10.0)}, {}, "high"),
        (unable | {"left": near}, {"left": "left"}, "left"),
        (unable | {"failed": near}, {"failed": "failed"}, "high"),
    ):
        statuses, level = ranked(curves, **more)
        assert (statuses[name], level) == ("recommended", -0.6 * SHARE)
    for none in ({}, {"none": Curves({})}):
        assert "recommended" not in ranked(none)[0].values()


def test_one_that_is_sooner_and_ends_lower_is_no_tie():
    """2 % below the best: at 0.95 of it in a fifth of the time, in nearly as long, or later."""
    curves = {"best": curve([0.0, 0.5, 0.6])}
    for name, seconds in (("sooner", 0.2), ("alike", 1.9), ("later", 9.0)):
        curves[name] = curve([0.0, 0.588], seconds)
    statuses = {"best": "recommended", "sooner": "lower", "alike": "tied", "later": "slower"}
    assert ranked(curves)[0] == statuses


def test_an_arm_that_never_comes_there_is_no_tie():
    """Though one of its seeds does; one that trained for less than the best took may yet come."""
    best, half = curve([0.0, 0.5, 0.6]), curve([0.0, 0.4, 0.41])
    curves = {"best": Curves({0: best.curves[0], 1: best.curves[0]})}
    curves["never"] = Curves({0: best.curves[0], 1: half.curves[0]})
    curves["not yet"] = curve([0.0, 0.4, 0.41], 0.1)
    statuses, _ = ranked({name: curves[name] for name in ("best", "never")})
    assert statuses == {"best": "recommended", "never": "slower"}
    statuses, _ = ranked({"best": best, "not yet": curves["not yet"], "never": half})
    assert statuses == {"best": "recommended", "not yet": "undecided", "never": "slower"}


def test_times_to_a_level_count_features():
    one, other = curve([0.0, 1.0], 2.0), curve([0.0, 1.0], 1.0, features=5.0)
    ratio = times_to_level(one, other, -0.5)
    assert ratio.value == pytest.approx((5 + 0.5) / 1)
    assert ratio.lower * ratio.upper == pytest.approx(ratio.value**2)
    assert times_to_level(one, curve([0.0, 0.4]), -0.5) is None
    known = curve([0.6, 0.9])  # by chance alone
    assert times_to_level(known, known, -0.5).value == 1
    assert times_to_level(known, one, -0.5) is None
    assert one.times_to(-0.5) == {0: pytest.approx(1.0)}
