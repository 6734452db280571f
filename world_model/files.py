"""Files that are whole or not there at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(file: Path) -> Iterator[Path]:
    """A name of its own beside ``file`` to write under; it takes the file's place when the block ends, and is gone when
    the block fails.

    There is no wait for the disk, and of what is written to several files at once the last one named is there first.

    >>> with whole(folder / "report.html") as part:  # doctest: +SKIP
    ...     part.write_text(text)
    """
    part = file.with_name(f".{file.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield part
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
