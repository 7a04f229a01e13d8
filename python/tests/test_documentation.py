"""What is written is so: the page's code, and that everything public is documented."""

import ast
import inspect
import re
import shutil
from pathlib import Path

import networkx

import anabranch as ab
from anabranch import _native

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "python.md"


def test_the_pages_code_is_python_and_its_laboratory_works():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for block in blocks[1:]:
        exec(block, {"networkx": networkx, "ab": ab})


def test_the_tutorial_runs(tmp_path, monkeypatch):
    shutil.copy(DOCS.parent / "tests" / "data" / "convnet.onnx", tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "start" / "python.md").read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)
    assert (tmp_path / "plan.json").exists() and (tmp_path / "page.html").exists()
    assert isinstance(names["refinement"], ab.Refinement)


def test_everything_public_is_documented_and_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    for name in ab.__all__:
        member = getattr(ab, name)
        assert inspect.getdoc(member), name
        if not inspect.isclass(member):
            continue
        for key, value in vars(member).items():
            if not key.startswith("_") and (callable(value) or isinstance(value, property)):
                assert inspect.getdoc(value), f"{name}.{key}"
                assert name != "Session" or re.search(rf"\b{key}\b", page), f"docs/python.md does not tell of {name}.{key}"


def test_the_arguments_that_the_page_lists_are_those_of_a_session():
    arguments = [name for name in inspect.signature(ab.Session).parameters if name not in ("model", "plans")]
    assert set(arguments) == set(_native.option_names())
    listed = PAGE.read_text(encoding="utf-8").split("(`help(ab.Session)`): ")[1].split(".\n")[0]
    assert re.findall(r"`(\w+)`", listed) == arguments
