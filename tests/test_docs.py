"""README and docs/ show what holds: Python blocks run, options exist, links lead to files."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from merlin_sim.scripts.main import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE_COMMAND = re.compile(r"`(merlin-sim [^`]*)`")
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#[^)]*)?\)")
OPTION = re.compile(r"--\w+")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands_of(page: Path) -> list[list[str]]:
    """The words behind each `merlin-sim` of a page: in shell blocks, and in running text."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line
        for block in SHELL_BLOCK.findall(text)
        for line in block.replace("\\\n", " ").splitlines()
    ]
    inline = [" ".join(found.split()) for found in INLINE_COMMAND.findall(text)]
    words = [shlex.split(line, comments=True) for line in lines if "merlin-sim" in line] + [
        found.split() for found in inline
    ]
    return [
        given[given.index("merlin-sim") + 1 :]
        for given in words
        if "merlin-sim" in given and given[-1] != "merlin-sim"
    ]


def find_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the words name, and what stands behind its name."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        below = command.get_command(click.Context(command), words[0])
        assert below is not None, f"there is no command {words[0]!r}"
        command, words = below, words[1:]
    return command, words


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if PYTHON_BLOCK.search(page.read_text())], ids=name_of
)
def test_the_python_blocks_of_a_page_run(page, tmp_path, monkeypatch, eagerly):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace: dict[str, object] = {"__name__": "__docs__"}
    for block in PYTHON_BLOCK.finditer(text):
        first_line = text.count("\n", 0, block.start(1))
        code = compile("\n" * first_line + block.group(1), str(page), "exec")
        exec(code, namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)], ids=name_of)
def test_the_commands_of_a_page_have_the_options_it_shows(page):
    unknown = []
    for words in commands_of(page):
        command, rest = find_command(words)
        known = {
            flag for option in command.params for flag in (*option.opts, *option.secondary_opts)
        }
        shown = {found for word in rest for found in OPTION.findall(word) if word.startswith("--")}
        unknown += [(command.name, flag) for flag in shown - known - {"--help"}]
    assert not unknown


def test_links_lead_to_files_and_the_navigation_has_every_page():
    """Anchors, and links between pages of docs/, are checked by `make docs` as well."""
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        links = LINK.findall(page.read_text(encoding="utf-8"))
        assert not [link for link in links if link and not (page.parent / link).exists()], page
        assert page.name in settings or page.parent == ROOT


def test_every_command_has_its_name():
    """The page of the command line is made of these names."""
    context = click.Context(cli)
    for group in (cli, cli.get_command(context, "data")):
        names = group.list_commands(context)
        assert [group.get_command(context, name).name for name in names] == names


def test_the_notice_names_every_paper_that_a_model_follows():
    modules = [path.read_text(encoding="utf-8") for path in (ROOT / "models").rglob("*.py")]
    papers = set(re.findall(r"arxiv\.org/abs/(\d{4}\.\d{5})", "\n".join(modules)))
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert papers and not {paper for paper in papers if paper not in notice}
