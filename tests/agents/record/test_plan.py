"""Which episodes a recording has: everything follows from seed and number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.record.plan import Plan, digest, identity


@given(st.integers(1, 9), st.integers(1, 40), st.sets(st.integers(0, 50)))
def test_waves_reach_exactly_what_is_missing(envs, episodes, done):
    plan = Plan("random", envs=envs)
    reached = {episode for wave in plan.waves(episodes, done) for episode in plan.episodes_of(wave)}
    missing = set(range(episodes)) - done
    assert missing <= reached
    assert all(missing & set(plan.episodes_of(wave)) for wave in plan.waves(episodes, done))


@given(st.integers(0, 2**32 - 1))
def test_episodes_differ_by_seed_and_number_and_not_by_their_wave(seed):
    few, many = Plan("random", envs=2, seed=seed), Plan("random", envs=7, seed=seed)
    seeds = [few.episode_seed(episode) for episode in range(50)]
    assert seeds == [many.episode_seed(episode) for episode in range(50)]
    assert len(set(seeds)) == 50 and not set(seeds) & {few.policy_seed(wave) for wave in range(50)}
    assert seeds[0] != Plan("random", envs=2, seed=seed + 1).episode_seed(0)


def test_a_recipe_knows_files_by_what_they_hold(plan, folder, tmp_path):
    policy = tmp_path / "policy.zip"
    policy.write_bytes(b"one")
    recipe = plan(policy=str(policy)).recipe()
    assert recipe["policy"] == str(policy) and {"world_sha256", "starts_sha256", "policy_sha256"} < set(recipe)
    moved = policy.rename(tmp_path / "moved.zip")
    assert identity(plan(policy=str(moved)).recipe()) == identity(recipe)
    moved.write_bytes(b"two")
    assert identity(plan(policy=str(moved)).recipe()) != identity(recipe)
    assert identity(plan(policy="idle").recipe())["policy"] == "idle"


def test_the_digest_of_a_folder_knows_names_and_bytes(tmp_path):
    digests = []
    for name, content in (("a", b"1"), ("b", b"1"), ("a", b"2")):
        for old in tmp_path.iterdir():
            old.unlink()
        (tmp_path / name).write_bytes(content)
        digests.append(digest(tmp_path))
    assert len(set(digests)) == 3
