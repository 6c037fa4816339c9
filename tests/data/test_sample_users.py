"""``prepare custom --sample-users``: what a sample keeps, by brute force, and what it says."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables_of import ids_of, named_links, prepare

from ncfbench.data.hold_out import draw_users
from ncfbench.data.sources import prepare_command

N_ITEMS = 7


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, N_ITEMS - 1)), min_size=1, max_size=40),
    st.none() | st.integers(1, 7),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
def test_a_sample_by_brute_force(tmp_path, pairs, size):
    """Users that are drawn keep all links, and decide the items that stay."""
    links = [{"user": user, "item": item} for user, item in pairs]
    titles = [{"id": item, "title": f"t{item}"} for item in range(N_ITEMS)]
    dataset, said = prepare(tmp_path, links, titles, sample_users=size, test_fraction=0.0)
    present = {user for user, _ in pairs}
    users = set(map(int, ids_of(dataset.user_ids)))
    assert users <= present
    assert len(users) == min(size or 9, len(present))
    left = {pair for pair in pairs if pair[0] in users}
    assert {(int(user), int(item)) for user, item in named_links(dataset)} == left
    assert set(map(int, ids_of(dataset.item_ids))) == {item for _, item in left}
    removed = dataset.manifest["removed"]
    rows = ("links_of_users_not_drawn", "duplicate_links")
    assert len(left) + sum(removed.get(reason, 0) for reason in rows) == len(pairs)
    assert removed.get("users_not_drawn", 0) == len(present) - len(users)
    everybody = f"--sample-users {size}: there are {len(present)} users; all are kept."
    assert (everybody in said) == (size is not None and size >= len(present))


def test_every_user_is_as_likely_as_any_other():
    """Over 3,000 seeds, 2 of 5 users: 1,200 each, give or take five standard deviations."""
    counts = Counter(user for seed in range(3000) for user in draw_users(5, 2, seed).tolist())
    assert sorted(counts) == list(range(5))
    assert all(abs(count - 1200) < 5 * (3000 * 0.4 * 0.6) ** 0.5 for count in counts.values())


def test_a_smaller_draw_is_part_of_a_larger_one():
    draws = [set(draw_users(100, size, seed=3).tolist()) for size in (1, 10, 50, 100)]
    assert [len(draw) for draw in draws] == [1, 10, 50, 100]
    assert draws[0] < draws[1] < draws[2] < draws[3]


def test_the_manifest_names_a_sample_and_nothing_else(tmp_path):
    """Without the option a data set has the options, and so the fingerprint, of before."""
    whole, _ = prepare(tmp_path)
    assert "sample_users" not in whole.manifest["options"]
    sample, said = prepare(tmp_path, sample_users=2, test_fraction=0.0)
    assert sample.manifest["options"]["sample_users"] == 2
    assert sample.fingerprint != whole.fingerprint
    assert any(
        line.startswith("A sample: 2 of 3 users; left out with the others:") for line in said
    )
    assert "--sample-users 2" in prepare_command("x", sample.manifest)
