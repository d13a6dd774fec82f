"""What every Python carries: the sources of its standard library and pydoc's language topics.

Nothing is imported and nothing is run; files are found through ``sysconfig`` and parsed with ``ast``. Reading and
parsing the whole library (about 8 MB) takes 3 to 5 seconds on one slow core.
"""

import ast
import inspect
import sys
import sysconfig
import warnings
from dataclasses import dataclass
from pathlib import Path

from hbp_prep.errors import DataError

# Packages left out: tests, tables without prose, code that is not the library's own, and pydoc's data (read apart).
_LEFT_OUT = frozenset({"distutils", "encodings", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "turtledemo"})
_TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
_MIN_MODULES = 50

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Function:
    """A public function or method that has a docstring.

    Attributes:
        name: Dotted, from the module on: ``textwrap.dedent``, ``csv.Sniffer.sniff``.
        signature: One line, e.g. ``def dedent(text)``.
        docstring: Indentation cleaned, not empty.
        source: Its lines, decorators left out, indentation of the first line removed from all.
        called_names: Names that its body calls, ascending, without repeats.
    """

    name: str
    signature: str
    docstring: str
    source: str
    called_names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Module:
    """One source file.

    Attributes:
        name: Dotted import name.
        path: Relative to the library's folder, with forward slashes.
        functions: Public functions and methods of public classes, in order of the file.
        top_level: Names of its public module-level functions, whether documented or not.
        classes: Of its public module-level classes: (name, base classes as written).
        imports: Modules that it imports anywhere, ascending.
    """

    name: str
    path: str
    source: str
    functions: tuple[Function, ...]
    top_level: tuple[str, ...]
    classes: tuple[tuple[str, tuple[str, ...]], ...]
    imports: tuple[str, ...]


def load_modules() -> list[Module]:
    """All modules of the standard library, by path. The same Python gives the same list.

    Raises:
        DataError: this Python keeps no sources.
    """
    folder = stdlib_folder()
    modules = []
    for path in _source_files(folder):
        module = _parse_module(path, (folder / path).read_bytes())
        if module is not None:
            modules.append(module)
    if len(modules) < _MIN_MODULES:
        raise DataError(
            f"{folder}: holds {len(modules)} readable source files of the standard library; the demo corpus is made "
            "of them: use a Python that is installed with its sources (python.org, uv, conda, a distribution's package)"
        )
    return modules


def load_topics() -> dict[str, str]:
    """Pydoc's language topics: {topic: text}, ascending; empty where this Python leaves them out."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return {}
    return dict(sorted(topics.items()))


def _source_files(folder: Path) -> list[str]:
    """Paths below ``folder``, ascending, of the library's own modules: not of what is installed beside them."""
    paths: list[Path] = []
    for name in sys.stdlib_module_names - _LEFT_OUT:
        paths += [path for path in [folder / f"{name}.py"] if path.is_file()]
        paths += (folder / name).rglob("*.py")
    relative = [path.relative_to(folder) for path in paths]
    return sorted(path.as_posix() for path in relative if not _TEST_FOLDERS.intersection(path.parts))


def stdlib_folder() -> Path:
    """Where the standard library's sources lie."""
    return Path(sysconfig.get_path("stdlib"))


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's code
        return ast.parse(text)


def _parse_module(path: str, data: bytes) -> Module | None:
    """``None`` for a file without text, or one that is deliberately not valid UTF-8 or not valid Python."""
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
        tree = _parse(text)
    except (UnicodeDecodeError, SyntaxError):
        return None
    if not text.strip():
        return None
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    lines = text.split("\n")
    functions: list[Function] = []
    top_level: list[str] = []
    classes: list[tuple[str, tuple[str, ...]]] = []
    for node in tree.body:
        if isinstance(node, FunctionNode) and not node.name.startswith("_"):
            top_level.append(node.name)
            functions += _function(node, name, lines)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            classes.append((node.name, tuple(ast.unparse(base) for base in node.bases)))
            for member in node.body:
                if isinstance(member, FunctionNode) and not member.name.startswith("_"):
                    functions += _function(member, f"{name}.{node.name}", lines)
    unique = {function.name: function for function in reversed(functions)}  # the first of equal names, e.g. a getter
    return Module(
        name=name,
        path=path,
        source=text,
        functions=tuple(reversed(unique.values())),
        top_level=tuple(dict.fromkeys(top_level)),
        classes=tuple(dict(classes).items()),
        imports=_imports(tree),
    )


def _function(node: FunctionNode, owner: str, lines: list[str]) -> list[Function]:
    """The function as a list of one, or of none where it has no usable docstring."""
    docstring = inspect.cleandoc(ast.get_docstring(node) or "")
    if len(docstring) < 20 or not _is_plain_text(docstring):
        return []
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    body = lines[node.lineno - 1 : node.end_lineno]
    indent = len(body[0]) - len(body[0].lstrip())
    return [
        Function(
            name=f"{owner}.{node.name}",
            signature=f"{keyword} {node.name}({ast.unparse(node.args)}){returns}",
            docstring=docstring,
            source="\n".join(line[indent:] if not line[:indent].strip() else line for line in body),
            called_names=_called_names(node),
        )
    ]


def _is_plain_text(text: str) -> bool:
    """No lone surrogates and no control characters, which escapes in a docstring can make."""
    return all(char in "\n\t" or (ord(char) >= 32 and not 0xD800 <= ord(char) <= 0xDFFF) for char in text)


def _called_names(node: FunctionNode) -> tuple[str, ...]:
    names = set()
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            target = ast.unparse(call.func)
            if len(target) <= 40 and target.replace(".", "").isidentifier():
                names.add(target)
    return tuple(sorted(names))


def _imports(tree: ast.Module) -> tuple[str, ...]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return tuple(sorted(names))
