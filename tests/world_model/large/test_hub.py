"""Places that are folders, hub ids or neither; nothing is downloaded here."""

from __future__ import annotations

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

from world_model.large.hub import local_folder


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What was asked of the hub, whose answer is a folder."""
    calls = []

    def download(repository, *, revision, allow_patterns):
        calls.append((repository, revision, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return calls


def test_what_is_here_is_not_looked_for_elsewhere(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert str(local_folder("org/name")) == "org/name" and local_folder(tmp_path) == tmp_path
    assert not asked


@pytest.mark.parametrize(
    ("place", "repository", "revision"),
    [("Wan-AI/Wan2.1-T2V", "Wan-AI/Wan2.1-T2V", None), ("a/b.c@refs/pr/1", "a/b.c", "refs/pr/1")],
)
def test_a_hub_id_is_fetched_without_its_pickles(asked, tmp_path, place, repository, revision):
    assert local_folder(place, ["transformer/"]) == tmp_path
    ((name, version, patterns),) = asked
    assert (name, version) == (repository, revision) and "transformer/*.safetensors" in patterns
    assert not any(pattern.endswith((".pt", ".pth", ".bin", "/*")) for pattern in patterns)


@pytest.mark.parametrize("place", ["/no/such/folder", "one", "a/b/c", "../up", "a b/c", "a/b@"])
def test_what_is_neither_is_said_to_be_missing(asked, place):
    with pytest.raises(FileNotFoundError, match="does not exist; give a folder, a file, or a hub id"):
        local_folder(place)
    assert not asked


@pytest.mark.parametrize("reason", [LocalEntryNotFoundError("no network\nmore"), OSError("down"), ValueError("bad id")])
def test_an_unreachable_hub_is_one_sentence(monkeypatch, reason):
    def fail(*given, **more):
        raise reason

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(FileNotFoundError, match="could not be fetched from the hub .(no network|down|bad id).; give a"):
        local_folder("org/name")


def test_the_hub_s_own_errors_are_of_the_kinds_that_are_caught():
    assert issubclass(LocalEntryNotFoundError, OSError) and issubclass(RepositoryNotFoundError, OSError)
