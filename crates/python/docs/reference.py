"""Writes docs/guide/python-reference.md from the documents of the package. A test compares the two."""

from __future__ import annotations

import inspect
import pathlib
import re

import spandrel_sparse as sl

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "guide" / "python-reference.md"

GROUPS = [
    ("Solve", ["solve", "Solver", "Solution", "Outcome", "Plan", "Attempt", "Times"]),
    ("As in SciPy", ["cg", "bicgstab", "gmres"]),
    ("Matrices", ["read_mtx", "write_mtx", "generate", "generators", "Generator", "spy", "Spy"]),
    ("Devices", ["devices", "Device"]),
    ("Exceptions", ["SpandrelError", "DeviceError", "NotConverged", "SolveInterrupted", "NotConvergedWarning"]),
]

HEAD = """# Python reference

Written by `python crates/python/docs/reference.py` from the documents of the package. The [chapter](python.md) shows how the parts work together.
All names are those of `import spandrel_sparse as sl`.
"""


def signature(name: str, thing: object) -> str:
    """The call as a reader would write it, without types."""
    if inspect.isclass(thing) and (issubclass(thing, BaseException) or hasattr(thing, "__dataclass_fields__") or name == "Spy"):
        return f"sl.{name}"
    parameters = inspect.signature(thing).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters if parameter.name != "self"]
    return f"sl.{name}{inspect.Signature(bare)}"


def inline(text: str) -> str:
    """reStructuredText's code marks as Markdown's."""
    return text.replace("``", "`")


def body(text: str) -> list[str]:
    """A document in numpydoc's layout as Markdown."""
    lines, made, section = text.splitlines(), [], ""
    at = 0
    while at < len(lines):
        line = lines[at]
        if at + 1 < len(lines) and lines[at + 1] and set(lines[at + 1]) == {"-"}:
            section = line
            if section != "Examples":
                made += [f"**{section}**", ""]
            at += 2
        elif section == "Examples":
            block = []
            while at < len(lines):
                block.append(lines[at])
                at += 1
            made += ["```pycon", *block, "```"]
        elif section in ("Parameters", "Returns", "Attributes") and line and not line.startswith(" "):
            about = []
            at += 1
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at]):
                about.append(lines[at].strip())
                at += 1
            names, _, kind = line.partition(" : ")
            names = ", ".join(f"`{name.strip()}`" for name in names.split(",")) if kind or section != "Returns" else names
            kind = f" ({inline(kind)})" if kind else ""
            about_text = inline(" ".join(word for word in about if word))
            made.append(f"- {names}{kind}" + (f": {about_text}" if about_text else ""))
            if at >= len(lines) or (at + 1 < len(lines) and set(lines[at + 1]) == {"-"}):
                made.append("")
        else:
            made.append(inline(line))
            at += 1
    while made and not made[-1]:
        made.pop()
    return made


def members(thing: type) -> list[str]:
    """The methods and properties of a class that have documents of their own."""
    made = []
    for name, value in vars(thing).items():
        if name.startswith("_") or not (inspect.isfunction(value) or isinstance(value, property)):
            continue
        if inspect.isfunction(value):
            bare = [
                parameter.replace(annotation=inspect.Parameter.empty)
                for parameter in inspect.signature(value).parameters.values()
                if parameter.name != "self"
            ]
            name = f"{name}{inspect.Signature(bare)}"
        made += [f"#### `{thing.__name__}.{name}`", "", *body(inspect.getdoc(value) or ""), ""]
    return made


def page() -> str:
    """The whole page."""
    made = [HEAD]
    listed = [name for _, names in GROUPS for name in names]
    missing = set(sl.__all__) ^ set(listed)
    assert not missing, f"the groups of {__file__} do not match the package: {missing}"
    for group, names in GROUPS:
        made += [f"## {group}", ""]
        for name in names:
            thing = getattr(sl, name)
            made += [f"### `{signature(name, thing)}`", "", *body(inspect.getdoc(thing) or ""), ""]
            if inspect.isclass(thing):
                made += members(thing)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(made)).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
