"""The rooms of the house and who may call whom: read from the import statements, nothing is run but `import wp2env`."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STOREYS = ("world_model", "wp2env", "agents", "benchmarks")  # each may import itself and what stands before it
FOUNDATION = {"controls", "control_scripts", "config"}  # of world_model: import nothing of the project but each other
HEAVY = {"vizdoom", "stable_baselines3", "diffusers", "transformers", "minari", "ray", "fastapi", "uvicorn", "pygame"}
CUDA_ONLY = {"triton", "flash_attn", "xformers", "sageattention", "transformer_engine", "bitsandbytes", "apex", "cupy"}
IMPORT_SECONDS = 3.0


@dataclass(frozen=True)
class Import:
    """One imported module of one file; ``on_load`` when importing the file runs it."""

    file: Path
    line: int
    module: str
    on_load: bool

    @property
    def importer(self) -> tuple[str, ...]:
        return self.file.relative_to(ROOT).with_suffix("").parts

    @property
    def imported(self) -> tuple[str, ...]:
        return tuple(self.module.split("."))

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def imports_of(file: Path, source: str | None = None) -> list[Import]:
    """All imports of a file, those inside functions and type-checking blocks too."""
    return list(_walk(ast.parse(file.read_text() if source is None else source), file, on_load=True))


def _walk(node: ast.AST, file: Path, on_load: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(file, node.lineno, alias.name, on_load)
    elif isinstance(node, ast.ImportFrom):
        package = file.relative_to(ROOT).parts[: -node.level] if node.level else ()
        base = ".".join((*package, *filter(None, (node.module,))))
        for alias in node.names:
            yield Import(file, node.lineno, f"{base}.{alias.name}", on_load)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        on_load = False
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.body:
            yield from _walk(child, file, on_load=False)
        for child in node.orelse:
            yield from _walk(child, file, on_load)
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, file, on_load)


ALL = [entry for storey in STOREYS for file in sorted((ROOT / storey).rglob("*.py")) for entry in imports_of(file)]
WITHIN_MODEL = [e for e in ALL if e.importer[0] == "world_model" and e.imported[0] == "world_model"]


def room(parts: tuple[str, ...]) -> str:
    """The room of `world_model` that a module belongs to: foundation, data, training or model."""
    name = parts[1] if len(parts) > 1 else ""
    if name in FOUNDATION:
        return "foundation"
    return name if name in ("data", "training") else "model"


def test_there_is_something_to_check():
    assert {entry.importer[0] for entry in ALL} >= {"world_model"} and len(WITHIN_MODEL) > 20


def test_imports_go_down_the_storeys_only():
    def too_high(entry: Import) -> bool:
        target = entry.imported[0]
        return target in STOREYS and STOREYS.index(target) > STOREYS.index(entry.importer[0])

    assert not [str(entry) for entry in ALL if too_high(entry)]


@pytest.mark.parametrize(
    ("importer", "allowed"),
    [
        ("foundation", {"foundation"}),
        ("data", {"data", "foundation"}),
        ("model", {"model", "foundation"}),
    ],
)
def test_rooms_of_the_world_model(importer, allowed):
    entries = [entry for entry in WITHIN_MODEL if room(entry.importer) == importer]
    assert entries or importer == "foundation"
    assert not [str(entry) for entry in entries if room(entry.imported) not in allowed]


def test_data_knows_the_controls_only():
    entries = [entry for entry in WITHIN_MODEL if room(entry.importer) == "data"]
    assert not [str(e) for e in entries if room(e.imported) == "foundation" and e.imported[1] == "config"]


def test_heavy_packages_are_not_imported_on_load_by_the_model_or_the_environment():
    def light(entry: Import) -> bool:
        return entry.importer[0] == "wp2env" or (entry.importer[0], room(entry.importer)) == ("world_model", "model")

    assert not [str(e) for e in ALL if e.on_load and e.imported[0] in HEAVY and light(e)]


def test_nothing_that_only_cuda_machines_have_is_imported_on_load():
    assert not [str(entry) for entry in ALL if entry.on_load and entry.imported[0] in CUDA_ONLY]


def test_importing_the_environment_is_light_and_fast():
    code = "import sys, wp2env; print(*sys.modules)"
    started = time.monotonic()
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds = time.monotonic() - started
    loaded = {name.partition(".")[0] for name in answer.stdout.split()}
    assert not loaded & (HEAVY | CUDA_ONLY)
    assert seconds < IMPORT_SECONDS


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a.b", [("a.b", True)]),
        ("from a import b, c", [("a.b", True), ("a.c", True)]),
        ("from . import x", [("world_model.data.x", True)]),
        ("from ..text import y", [("world_model.text.y", True)]),
        ("def f():\n    import a", [("a", False)]),
        ("class C:\n    import a", [("a", True)]),
        ("try:\n    import a\nexcept ImportError:\n    pass", [("a", True)]),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import b", [("a", False), ("b", True)]),
    ],
)
def test_the_reader_of_imports_sees_every_form(source, expected):
    found = imports_of(ROOT / "world_model" / "data" / "some.py", source)
    assert [(entry.module, entry.on_load) for entry in found] == expected
