"""Numbers from ``.npy`` and ``.npz`` files that may be damaged; never a pickle."""

from __future__ import annotations

from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from world_model.data.public.poses import PoseError


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, the one of a ``.npy`` file under ``""``; `PoseError` if it holds anything else."""
    if not path.is_file():
        raise PoseError(path, None, "there is no such file of poses")
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            arrays = {"": content}
        else:
            with content:
                arrays = {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise PoseError(path, None, f"it is no readable file of arrays ({error})") from None
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise PoseError(path, None, f"{name or 'its content'} is not made of numbers but of {array.dtype}")
    return arrays
