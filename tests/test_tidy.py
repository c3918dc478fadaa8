"""The rules of docs/ARCHITECTURE.md and of the house that a machine can check."""

import ast
import io
import re
import tokenize
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fabemu"
CORE = ROOT / "ext" / "fabemu" / "_core"
MODULES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted([*CORE.glob("*.pxd"), *CORE.glob("*.pyx")])
ARCHITECTURE = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
MODEL = (ROOT / "docs" / "MODEL.md").read_text(encoding="utf-8")
LONGEST_FILE = 900  # lines; what is longer holds several nouns
SKIPPED = {"build", "dist", "__pycache__", "data"}

PYTHON = sorted(
    path
    for folder in ("src", "tests", "bench", "docs")
    for path in (ROOT / folder).rglob("*.py")
    if not SKIPPED & set(path.relative_to(ROOT).parts)
)
WRITTEN = sorted(
    path
    for path in [
        *ROOT.glob("*"),
        *(
            found
            for folder in ("src", "ext", "tests", "bench", "docs", "scenarios", ".ci")
            for found in (ROOT / folder).rglob("*")
        ),
    ]
    if path.is_file()
    and not SKIPPED & set(path.relative_to(ROOT).parts)
    and (path.suffix in {".py", ".pyx", ".pxd", ".md", ".toml", ".csv"} or path.name == "run")
)


def table(heading: str) -> dict[str, int]:
    """Level by name, of the table under a heading of ARCHITECTURE."""
    section = ARCHITECTURE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (-?\d+) \| `([\w.]+)` \| .+ \|$", section, re.MULTILINE)
    names = [name for _, name in rows]
    assert len(names) == len(set(names)), f"{heading}: listed twice"
    return {name: int(level) for level, name in rows}


MODULE_LEVELS = table("Modules")
MODULE_NAMES = {f"fabemu.{name}" for name in MODULE_LEVELS}
ROOM_LEVELS = table("Rooms of the core")


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# The map.


def test_every_module_is_on_the_map():
    assert {name for path in MODULES if (name := module_name(path))} == set(MODULE_LEVELS)


def test_every_room_is_on_the_map():
    assert {path.stem for path in ROOMS} == set(ROOM_LEVELS)


def test_modules_of_a_package_stand_on_its_level_or_above():
    for name, level in MODULE_LEVELS.items():
        assert level >= MODULE_LEVELS[name.split(".")[0]], name


class Imports(ast.NodeVisitor):
    """Modules of fabemu that a module imports, but for type hints."""

    def __init__(self):
        self.names = set()

    def visit_If(self, node):
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_Import(self, node):
        self.names |= {alias.name for alias in node.names}

    def visit_ImportFrom(self, node):
        assert node.level == 0, "imports are absolute"
        self.names.add(node.module)
        self.names |= {name for alias in node.names if (name := f"{node.module}.{alias.name}") in MODULE_NAMES}


EXCEPTIONS = {("result", "report")}  # Run.summary asks for it when it is called


@pytest.mark.parametrize("path", MODULES[1:], ids=module_name)
def test_imports_go_down(path):
    name = module_name(path)
    if not name:
        return
    visitor = Imports()
    visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
    package = name.split(".")[0]
    for imported in visitor.names:
        if not imported.startswith("fabemu."):
            continue
        module = imported.removeprefix("fabemu.")
        target = module.split(".")[0]
        if (package, target) in EXCEPTIONS:
            continue
        # Within a package, modules of one level may import each other.
        highest = MODULE_LEVELS[name] - (target != package)
        assert MODULE_LEVELS.get(module, MODULE_LEVELS[target]) <= highest, f"{name} imports {imported}"
        # One steps the engine, one writes its rows, one asks for the sizes of its structs.
        assert target != "_core" or name in {"simulate", "recorder", "cost.footprint"}, f"{name} imports the core"


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: path.stem)
def test_cimports_go_down(path):
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"^from \.(\w+) cimport", text, re.MULTILINE):
        assert ROOM_LEVELS[target] < ROOM_LEVELS[path.stem], f"{path.name} cimports {target}"
    others = re.findall(r"^(?:from ([\w.]+) )?cimport (\w+)", text, re.MULTILINE)
    outside = {source or name for source, name in others} - {f".{room}" for room in ROOM_LEVELS}
    assert all(re.match(r"(libc|posix)\.\w+$", name) for name in outside), "the core uses the C library alone"


# Form.


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: path.name)
def test_rooms_open_with_what_they_own(path):
    opening = path.read_text(encoding="utf-8").split('"""')[1]
    assert re.search(r"^Owns      \S", opening, re.MULTILINE)
    assert re.search(r"^(Invariant|Order    ) \S", opening, re.MULTILINE)
    assert "# cython:" not in path.read_text(encoding="utf-8"), "directives are set in setup.py"


def test_modules_open_with_a_docstring():
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), relative(path)


def test_files_are_not_longer_than_one_noun_needs():
    for path in [*PYTHON, *ROOMS]:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE, relative(path)


def test_names_say_what_a_file_is_about():
    for path in [*MODULES, *ROOMS]:
        assert path.stem.lower() not in {"utils", "util", "helpers", "helper", "common", "misc"}, relative(path)


# Words that only belong to how the work was done, not to the work. Spelt in parts, so that this file has none of them.
FORBIDDEN = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bcl" + r"aude\b",
        r"\bgp" + r"t\b",
        r"\bl" + r"lms?\b",
        r"\bai" + r" mo" + r"dels?\b",
        r"\bag" + r"ents?\b",
        r"\bassi" + r"stants?\b",
        r"\bpro" + r"mpts?\b",
        r"(?:this|the|my|a) ses" + r"sion\b",
        r"(?<![\w.])/wo" + r"rk/",
        r"(?<![\w.])/tm" + r"p/",
        r"(?<![\w.])/ho" + r"me/",
        r"(?<![\w.])/ro" + r"ot/",
        r"py" + r"pi\.org",
        r"pythonh" + r"osted",
        r"\bTO" + r"DO\b",
        r"\bFIX" + r"ME\b",
        r"\bXX" + r"X\b",
    )
]


@pytest.mark.parametrize("path", WRITTEN, ids=relative)
def test_no_word_about_how_the_work_was_done(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for pattern in FORBIDDEN:
            assert not pattern.search(line), f"{relative(path)}:{number}: {line.strip()}"


def is_code(text: str) -> bool:
    """Whether the text of a comment parses as a statement that no sentence would be."""
    if not re.search(r"[=()\[\]]|^(return|import|from|if|for|while|raise|assert|del|pass|break|continue)\b", text):
        return False
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    statements = (ast.Assign, ast.AugAssign, ast.Return, ast.Import, ast.ImportFrom, ast.Raise, ast.Assert, ast.Delete)
    calls = bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Call)
    return bool(body) and (isinstance(body[0], statements) or calls)


@pytest.mark.parametrize("path", PYTHON, ids=relative)
def test_no_code_is_commented_out(path):
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        # A comment behind code may well be a formula.
        if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
            text = token.string.lstrip("# ")
            assert not is_code(text), f"{relative(path)}:{token.start[0]}: {token.string}"


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: path.name)
def test_no_code_is_commented_out_in_the_core(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("#"):
            text = line.strip().lstrip("# ")
            assert not text.startswith(("cdef ", "return ", "for ", "while ")) or text.endswith("."), (
                f"{number}: {line}"
            )
            assert not is_code(text), f"{path.name}:{number}: {line}"


# What belongs together.


def test_simplifications_are_in_the_model():
    for path in [*MODULES, *ROOMS]:
        for note in re.findall(r"# MODEL: (.+)", path.read_text(encoding="utf-8")):
            assert note.rstrip(".").lower() in MODEL.lower(), f"{relative(path)}: {note} is not in docs/MODEL.md"


def test_sections_of_the_model_that_are_named_exist():
    sections = {int(number) for number in re.findall(r"^## (\d+)\. ", MODEL, re.MULTILINE)}
    for path in [*MODULES, *ROOMS]:
        text = path.read_text(encoding="utf-8")
        for number in re.findall(r"\bMODEL(?:\.md)?,? (?:section )?(\d+)", text):
            assert int(number) in sections, f"{relative(path)}: MODEL {number}"


def test_every_fault_has_a_text():
    names = re.findall(r"^    FAULT_(\w+) = (\d+)$", (CORE / "types.pxd").read_text(encoding="utf-8"), re.MULTILINE)
    codes = {int(code) for name, code in names if name != "NONE"}
    assert codes == set(range(1, len(codes) + 1))
    texts = (CORE / "engine.pyx").read_text(encoding="utf-8").split("FAULT_TEXTS = {")[1].split("}")[0]
    assert {int(code) for code in re.findall(r"^    (\d+): \"\w", texts, re.MULTILINE)} == codes


def test_pages_made_from_the_code_are_current():
    from fabemu.analysis.alarm_page import health_page
    from fabemu.lint.page import checks_page
    from fabemu.scenario.reference import reference_page
    from fabemu.trace_reference import traces_page

    assert (ROOT / "docs" / "SCENARIO.md").read_text(encoding="utf-8").strip() == reference_page().strip()
    assert (ROOT / "docs" / "TRACES.md").read_text(encoding="utf-8").strip() == traces_page().strip()
    assert (ROOT / "docs" / "CHECKS.md").read_text(encoding="utf-8").strip() == checks_page().strip()
    assert (ROOT / "docs" / "HEALTH.md").read_text(encoding="utf-8").strip() == health_page().strip()


def test_the_version_is_in_the_changelog():
    with open(ROOT / "pyproject.toml", "rb") as file:
        version = tomllib.load(file)["project"]["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{version}]" in changelog
    for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[2:]:
        assert "### Changed results" in section, section.splitlines()[0]


def test_the_installed_package_is_complete():
    import fabemu

    installed = Path(fabemu.__file__).parent

    def files(root: Path) -> set[str]:
        return {
            path.relative_to(root).as_posix()
            for path in root.rglob("*")
            if path.is_file() and path.suffix in {".py", ".csv", ".typed"}
        }

    assert files(installed) == files(SOURCE), "install again; a leftover `build` directory may hold what has gone"
