"""Weights by hub id: what is not a folder here is fetched through huggingface_hub, which keeps it in its cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

HUB_ID = r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>[\w./-]+))?"  # ORG/NAME or ORG/NAME@REVISION
WEIGHTS = ("*.json", "*.safetensors", "*.txt", "*.model")  # never a pickle; the last two are a tokenizer's


def local_folder(place: str | Path, inside: Sequence[str] = ("",)) -> Path:
    """``place`` if it exists here, else the folder in huggingface_hub's cache that holds its files.

    ``inside`` are the beginnings of the paths that are wanted, such as ``transformer/``; nothing else is fetched.

    Raises:
        FileNotFoundError: when it is neither here nor a hub id, or the hub cannot be reached or does not have it.
    """
    path = Path(place)
    if path.exists():
        return path
    found = re.fullmatch(HUB_ID, str(place))
    if found is None:
        raise FileNotFoundError(f"{place} does not exist; give a folder, a file, or a hub id such as ORG/NAME")
    from huggingface_hub import snapshot_download

    patterns = [f"{beginning}{end}" for beginning in inside for end in WEIGHTS]
    try:
        return Path(snapshot_download(found["repository"], revision=found["revision"], allow_patterns=patterns))
    except (OSError, ValueError) as error:  # huggingface_hub's own are of these kinds
        reason = str(error).strip().partition("\n")[0]
        raise FileNotFoundError(
            f"{place} is no folder here and could not be fetched from the hub ({reason}); give a local folder, or try "
            "again where the hub can be reached"
        ) from error
