"""What the architecture tests read: the modules of the package as text and as trees, and the files of the repository."""

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "jobwell"


@dataclass(frozen=True)
class Module:
    """A Python file of the repository."""

    path: Path
    text: str
    tree: ast.Module

    def at(self, node: ast.AST | int) -> str:
        """Where it is, as an editor understands it."""
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return f"{self.path.relative_to(ROOT)}:{line}"

    def inside(self, *folders: str) -> bool:
        """Whether it lies in one of these folders of the package."""
        return any(self.path.is_relative_to(SRC / folder) for folder in folders)


@cache
def modules(folder: Path = SRC) -> tuple[Module, ...]:
    """All modules below a folder, in order."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path, text, ast.parse(text, str(path))))
    assert found, f"there are no modules in {folder}"
    return tuple(found)


def texts(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The string constants of a module without its docstrings; of an f-string the constant parts, with {} for the others."""
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        first = node.body[0] if isinstance(node, described) and node.body else None
        if isinstance(first, ast.Expr):
            skipped.add(first.value)
        if isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
            yield node, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in skipped:
            yield node, node.value


def statements() -> Iterator[tuple[str, str, list[str]]]:
    """The named statements of the store: where, name, lines."""
    for path in sorted((SRC / "store" / "sql").glob("*.sql")):
        lines = path.read_text(encoding="utf-8").rstrip().splitlines()
        starts = [at for at, line in enumerate(lines) if line.startswith("-- name: ")]
        assert starts, f"{path} names no statement"
        for at, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            body = "\n".join(lines[at:end]).rstrip().splitlines()
            yield f"{path.relative_to(ROOT)}:{at + 1}", lines[at].removeprefix("-- name: "), body


def git(*arguments: str) -> list[str]:
    """The lines that git answers."""
    command = ["git", "-C", str(ROOT), "-c", "core.quotepath=off", "-c", "safe.directory=*", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@cache
def files() -> tuple[Path, ...]:
    """The files of the repository: tracked or about to be, never what .gitignore names."""
    ignored = set(git("ls-files", "-ci", "--exclude-standard"))
    listed = set(git("ls-files", "-co", "--exclude-standard")) - ignored
    return tuple(path for name in sorted(listed) if (path := ROOT / name).is_file())


def report(problems: list[str], rule: str) -> None:
    """Fail with one line for each offender."""
    assert not problems, "\n".join((rule, *(f"  {problem}" for problem in problems)))
