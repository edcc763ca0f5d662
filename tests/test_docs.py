"""Documentation that drifts fails here: Python blocks run, links lead somewhere, names exist, the README in order."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tacit.extras import DISTRIBUTION
from tacit.policies.registry import POLICIES

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)\s]*)?\)")
DEFINITION = re.compile(r"^\[([^\]]+)\]: ([^#\s]+)(#\S*)?$", re.MULTILINE)
"""`[label]: target`, the second half of a link that is written `[text][label]`."""
LONGEST_LINE = 120
FORBIDDEN = ("/work/", "/tmp/", "/root/", "pypi.org", "pythonhosted")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


MODULES = ROOT / "CONTRIBUTING.md"
"""Its blocks are modules of their own, which tests/test_contributing.py writes to files and uses."""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != MODULES and BLOCK.search(page.read_text())], ids=name_of
)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_local_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    targets = [target for target, _ in LINK.findall(text)] + [target for _, target, _ in DEFINITION.findall(text)]
    for target in targets:
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}, which does not exist"


def _anchors(page: Path) -> set[str]:
    """Headings as the links to them are written: lower case, blanks as hyphens, other signs left out."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_headings_find_them(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if not target.startswith("http"):
            place = page.parent / target if target else page
            assert anchor in _anchors(place), f"{name_of(page)} links to {target}#{anchor}, which does not exist"


def test_docstrings_point_to_headings_of_the_theory() -> None:
    known = _anchors(ROOT / "docs" / "theory.md")
    pointers = [
        (path, anchor)
        for path in (ROOT / "src").rglob("*.py")
        for anchor in re.findall(r"docs/theory\.md#([\w-]+)", path.read_text(encoding="utf-8"))
    ]
    assert len(pointers) > 10
    assert [f"{name_of(path)}: #{anchor}" for path, anchor in pointers if anchor not in known] == []


def test_docstrings_quote_headings_that_exist() -> None:
    """`docs/page.md, "Heading"`: a heading of the page, or the bold beginning of a paragraph."""
    quoted = re.compile(r'(docs/[\w/]+\.md),\s+"([^"]+)"')
    pointers = [
        (path, page, re.sub(r"\s+", " ", heading))
        for path in (ROOT / "src").rglob("*.py")
        for page, heading in quoted.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(pointers) > 5
    for path, page, heading in pointers:
        known = re.findall(r"^(?:#+ (.*)|\*\*(.*?)\.?\*\*)", (ROOT / page).read_text(), re.MULTILINE)
        assert heading in {found for pair in known for found in pair}, f"{name_of(path)}: {page}, {heading!r}"


def test_every_formal_guarantee_points_to_its_proof() -> None:
    docstring = re.compile(r'"""(?:(?!""").)*?Formal guarantee(?:(?!""").)*?"""', re.DOTALL)
    found = [
        (path, text)
        for path in (ROOT / "src").rglob("*.py")
        for text in docstring.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 20
    assert [name_of(path) for path, text in found if "docs/theory.md#" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_by_reference_are_defined(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    used = set(re.findall(r"\]\[([^\]]+)\]", text))
    defined = {label for label, _, _ in DEFINITION.findall(text)}
    assert used == defined, f"{name_of(page)}: used {sorted(used)}, defined {sorted(defined)}"


def test_no_line_is_too_long() -> None:
    """Code blocks and tables included: a reader with two windows side by side must not scroll."""
    long_lines = [
        f"{name_of(page)}:{number} has {len(line)} characters"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), start=1)
        if len(line) > LONGEST_LINE
    ]
    assert not long_lines, "\n".join([f"lines of more than {LONGEST_LINE} characters:", *long_lines])


def test_no_double_dots_in_the_middle_of_a_sentence() -> None:
    """An ellipsis has three dots; `../` is a folder."""
    found = [
        f"{name_of(page)}:{number}: {line.strip()}"
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), start=1)
        if re.search(r"(?<!\.)\.\.(?![./])", line)
    ]
    assert not found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_paths_in_the_text_exist(page: Path) -> None:
    for path in re.findall(r"`((?:src|tests|docs|benchmarks|workloads)/[\w./-]+)`", page.read_text()):
        assert (ROOT / path).exists(), f"{name_of(page)} names {path}, which does not exist"


def test_modules_named_in_theory_exist() -> None:
    for module in re.findall(r"`(tacit(?:\.\w+)+)`", (ROOT / "docs" / "theory.md").read_text()):
        path = ROOT / "src" / Path(*module.split("."))
        parent = path.parent
        assert path.is_dir() or path.with_suffix(".py").exists() or parent.with_suffix(".py").exists(), module


def test_readme_sections_come_in_order() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    wanted = ["Five lines", "Run it", "Test it", "Results", "How privacy is guaranteed and checked", "Documentation"]
    assert [heading for heading in headings if heading in wanted] == wanted


def test_readme_names_every_policy() -> None:
    text = (ROOT / "README.md").read_text()
    missing = [name for name in POLICIES if f"`{name}`" not in text]
    assert not missing


def test_install_lines_name_the_distribution_and_its_extras() -> None:
    """`tacit` on a package index is another project."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    files = [*PAGES, ROOT / "dev.py", *(ROOT / "src").rglob("*.py"), *ROOT.rglob("Dockerfile*")]
    named: list[str] = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w-])tacit\[[a-z]", text), f"{name_of(path)} has an extra of another distribution"
        for line in re.findall(r"(?:pip install|uv add) ([^`\n]*)", text):
            packages = re.findall(r"(?<![\w./-])tacit[\w-]*", line.partition("&&")[0])
            assert set(packages) <= {DISTRIBUTION}, f"{name_of(path)} installs {packages}"
            named += packages
        asked = re.findall(rf"{DISTRIBUTION}\[([a-z,]+)\]", text)
        assert {extra for part in asked for extra in part.split(",")} <= set(extras), name_of(path)
    assert len(named) > 5


def test_nothing_speaks_of_one_machine() -> None:
    folders = ("src", "tests", "docs", "benchmarks", "workloads", "requirements")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".txt")]
    for path in [*files, ROOT / "README.md", ROOT / "pyproject.toml", ROOT / "dev.py"]:
        if path == Path(__file__):
            continue
        found = [word for word in FORBIDDEN if word in path.read_text(encoding="utf-8")]
        assert not found, f"{name_of(path)} names {found}"
