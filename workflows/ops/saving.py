"""Workflows on disk: ``workflow.json`` and parquet files, nothing to execute.

The JSON file has the graph, what each operator was made of and what it learned, the input's schema,
the SHA-256 of every file and a digest of itself. No path in it is absolute, so a directory may be
moved. Only operators that are registered are made of it.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import nvtabular as nvt
from merlin.dag import Node
from merlin.dag.node import postorder_iter_nodes
from merlin.schema import Schema, Tags
from nvtabular import ColumnSelector
from nvtabular.ops import Operator, StatOperator

from ... import __version__
from ...foundation.digest import DIGEST, require_own_digest, sha256, with_own_digest
from ...foundation.exceptions import MerlinSimError
from ...foundation.files import read_json, staged_directory, write_text_atomically
from ...schemas.column_record import from_record, to_record
from ...schemas.fitted_record import CONFIG, HISTORIES, LEARNED, SAVED, nodes_before, require_shape
from ...schemas.layout_names import WORKFLOW_FILE
from .registry import BY_NAME, FORMS, PREFIX, REFUSED, names_of_classes, operators_with
from .workflow import Workflow

FILES = "workflow"
"""The directory beside it that has what operators learned."""
FORMAT = 9
"""Former ones lack digests of vocabularies, repeated what operators say, or were of no graphs."""
DTYPE, TAG, SELECTOR = "__dtype__", "__tag__", "__selector__"


def save_workflow(workflow: nvt.Workflow, directory: Path | str, **more: Any) -> None:
    """Save a fitted workflow, of NVTabular's or registered operators, to a directory.

    The directory may hold other files. A workflow that was saved there before is replaced. The JSON
    file is written last, so a workflow is there whole, or as it was before. ``more`` are further
    sections of it, which :func:`read_workflow_document` gives back.
    """
    directory = Path(directory)
    taken = sorted({*SAVED, DIGEST} & set(more))
    if taken:
        raise MerlinSimError(f"{WORKFLOW_FILE} has sections of its own. Received: {taken[0]}.")
    directory.mkdir(parents=True, exist_ok=True)
    former = _former_files(directory)
    names = itertools.chain([FILES], (f"{FILES}-{number}" for number in itertools.count(2)))
    files = next(name for name in names if not (directory / name).exists())
    with staged_directory(directory / files) as staged:
        operators = _operators(workflow)
        document = _document(workflow, operators, staged)
        found = (path for path in staged.rglob("*") if path.is_file())
        written = sorted(path for path in found if not path.name.startswith("."))
        digests = {f"{files}/{path.relative_to(staged)}": sha256(path) for path in written}
    vocabularies = {file for op in operators for file in _vocabularies(op, directory)}
    document |= {
        "files": {**digests, **{name: sha256(directory / name) for name in sorted(vocabularies)}},
        **_plain(more, "`more`"),
    }
    try:
        text = with_own_digest(document)
        write_text_atomically(directory / WORKFLOW_FILE, text)
    except BaseException:
        shutil.rmtree(directory / files)
        raise
    if not digests:
        shutil.rmtree(directory / files)
    if former is not None and former != files:
        shutil.rmtree(directory / former, ignore_errors=True)


def load_workflow(directory: Path | str, operators: Iterable[type[Operator]] = ()) -> nvt.Workflow:
    """Load a workflow that :func:`save_workflow` saved, perhaps elsewhere.

    It may name ``operators`` besides those that are registered.
    """
    path = Path(directory).absolute() / WORKFLOW_FILE
    document = read_workflow_document(directory)
    check_files(path, document["files"])
    known = operators_with(operators)
    made = [make_operator(path, document, n, known) for n in range(len(document["operators"]))]
    try:
        return _made(document, made)
    except Exception as error:  # operators look at columns that a changed file may not have
        raise MerlinSimError(
            f"{path}: nodes: expected a graph of its operators, found something else "
            f"({type(error).__name__}: {error})."
        ) from error


def read_workflow_document(directory: Path | str) -> dict[str, Any]:
    """Read a saved workflow's JSON, with the sections that its caller added."""
    path = Path(directory) / WORKFLOW_FILE
    document = read_json(path, "JSON, a fitted workflow")
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise MerlinSimError(
            f"{path}: expected a workflow of format {FORMAT}, found format {found}. Workflows of "
            "other versions are not read: fit it again with this one."
        )
    require_own_digest(path)
    lacking = [section for section in SAVED if section not in document]
    if lacking:
        raise MerlinSimError(f"{path}: expected the section {lacking[0]!r}, found none.")
    require_shape(path, {name: document[name] for name in SAVED}, SAVED)
    for number, record in enumerate(document["operators"]):
        if record["operator"] == HISTORIES:
            require_shape(path, record["config"], CONFIG, "operators", number, "config")
            require_shape(path, record["learned"], LEARNED, "operators", number, "learned")
    _check_graph(path, document)
    return {name: value for name, value in document.items() if name != DIGEST}


def _check_graph(path: Path, document: Mapping[str, Any]) -> None:
    """Refuse nodes that name operators which are not there, or read nodes that come later."""
    for index, node in enumerate(document["nodes"]):
        before = nodes_before(node)
        known = node["operator"] in range(len(document["operators"]))
        if not known or not all(type(one) is int and one in range(index) for one in before):
            raise MerlinSimError(
                f"{path}: nodes[{index}]: expected one of the operators, and nodes before it, "
                f"found operator {node['operator']} and nodes {before!r:.60}."
            )
        require_shape(path, [one.get("name") for one in node["columns"]], [str], "nodes", index)
    if not document["nodes"]:
        raise MerlinSimError(f"{path}: nodes: expected one at least, found none.")


def _former_files(directory: Path) -> str | None:
    """The directory that a workflow saved here before has its files in."""
    try:
        files = read_workflow_document(directory)["files"]
    except MerlinSimError:
        return None
    return _folder(files)


def _folder(files: Mapping[str, str]) -> str | None:
    return next((name.split("/")[0] for name in files if name.startswith(FILES)), None)


def _vocabularies(op: Any, directory: Path) -> list[str]:
    """The files of a dataset directory that an operator reads in place of files of its own."""
    return [*op.vocabularies_in(directory)] if hasattr(op, "vocabularies_in") else []


def _operators(workflow: nvt.Workflow) -> list[Operator]:
    if workflow.output_node.output_schema is None:
        raise MerlinSimError("A workflow is saved when it is fitted. Received: one that is not.")
    found: list[Operator] = []
    for node in postorder_iter_nodes(workflow.output_node):
        if not any(node.op is op for op in found):
            found.append(node.op)
    return found


def _document(workflow: nvt.Workflow, found: Sequence[Operator], directory: Path) -> dict[str, Any]:
    nodes = list(postorder_iter_nodes(workflow.output_node))
    number_of = {id(node): number for number, node in enumerate(nodes)}
    names = names_of_classes()
    return {
        "format": FORMAT,
        "merlin_sim": __version__,
        "nvtabular": nvt.__version__,
        "input_schema": [to_record(column) for column in workflow.input_schema],
        "operators": [
            _operator_record(op, names, directory / str(number)) for number, op in enumerate(found)
        ],
        "nodes": [
            {
                "operator": next(n for n, op in enumerate(found) if op is node.op),
                "selector": _plain(node.selector, "selector"),
                "parents": [number_of[id(parent)] for parent in node.parents],
                "dependencies": _each(node.dependencies, lambda one: number_of[id(one)]),
                "columns": [_dtype_record(column) for column in node.output_schema],
            }
            for node in nodes
        ],
    }


def _each(one: Any, make: Callable[[Any], Any]) -> Any:
    """Make something of a node, or of each in lists of them."""
    return [_each(part, make) for part in one] if isinstance(one, list) else make(one)


def _dtype_record(column: Any) -> dict[str, Any]:
    record = to_record(column)
    return {name: record[name] for name in ("name", "dtype", "dims") if name in record}


def _operator_record(
    op: Any, names: Mapping[type[Operator], str], directory: Path
) -> dict[str, Any]:
    cls = type(op)
    form, name = FORMS.get(cls), names.get(cls)
    shown = next((name for name, found in vars(nvt.ops).items() if found is cls), cls.__name__)
    if form is None and name is None:
        why = next((why for kind, why in REFUSED.items() if isinstance(op, kind)), None)
        if op.is_subgraph:
            why = "it is a graph of its own"
        raise MerlinSimError(
            f"{shown} cannot be saved: {why or 'it is not registered'}. Write a class with "
            "`get_config` for it and register it (`ops.register`)."
        )
    learns = isinstance(op, StatOperator)
    if learns and not op.fitted:
        raise MerlinSimError(f"{shown} is not fitted; a workflow is saved when all of it is.")
    directory.mkdir()
    try:
        config = form.get_config(op) if form else op.get_config()
        learned = {}
        if form:
            learned = form.get_learned(op, directory)
        elif learns:
            learned = op.get_learned(directory)
        record = {
            "operator": name or f"{PREFIX}{cls.__name__}",
            "config": _plain(config, "argument"),
            "learned": _plain(learned, "learned"),
        }
    except MerlinSimError as error:
        raise MerlinSimError(f"{shown} cannot be saved: {error}.") from error
    if not any(directory.iterdir()):
        directory.rmdir()
    return record


def _plain(value: Any, where: str) -> Any:
    """Make JSON of an argument; what JSON lacks is marked by a key."""
    if isinstance(value, ColumnSelector):
        parts: dict[str, Any] = {
            "names": "*" if value.all else list(value._names),
            "tags": [str(getattr(tag, "value", tag)) for tag in value.tags],
            "subgroups": [_plain(group, where) for group in value.subgroups],
        }
        return {SELECTOR: parts}
    if isinstance(value, Tags):
        return {TAG: value.value}
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return {DTYPE: np.dtype(value).name}
    if isinstance(value, Mapping):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise MerlinSimError(f"{where}: the key {odd[0]!r} is no string")
        return {key: _plain(item, f"{where} {key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist(), where)
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise MerlinSimError(f"{where}: a {type(value).__name__} cannot be written to a JSON file")


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {SELECTOR}:
        parts = value[SELECTOR]
        if parts["names"] == "*":
            return ColumnSelector("*")
        subgroups = [_from_plain(group) for group in parts["subgroups"]]
        known = {tag.value: tag for tag in Tags}
        tags = [known.get(tag, tag) for tag in parts["tags"]]
        return ColumnSelector(list(parts["names"]), subgroups=subgroups, tags=tags)
    if value.keys() == {TAG}:
        return Tags(value[TAG])
    if value.keys() == {DTYPE}:
        return np.dtype(value[DTYPE])
    return {key: _from_plain(item) for key, item in value.items()}


def check_files(path: Path, files: Mapping[str, str]) -> None:
    """Refuse files beside a workflow.json that are not those that it was written with."""
    for name, digest in files.items():
        file = path.parent / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise MerlinSimError(f"{path}: expected files beside it, found {name!r}.")
        if not file.is_file():
            raise MerlinSimError(f"{file}: missing; {path} names it.")
        if sha256(file) != digest:
            raise MerlinSimError(
                f"{file}: not the file that {path} was written with (its SHA-256 differs)."
            )
    folder = _folder(files)
    for found in sorted((path.parent / folder).rglob("*")) if folder else ():
        name = f"{found.relative_to(path.parent)}"
        if found.is_file() and name not in files and not found.name.startswith("."):
            raise MerlinSimError(f"{found}: expected the files that {path} names, found another.")


def require_digest(path: Path, document: Mapping[str, Any], file: str) -> None:
    """Refuse a workflow that does not say which file a vocabulary is."""
    if file not in document["files"]:
        raise MerlinSimError(f"{path}: files: expected the SHA-256 of {file}, found none.")


def _made(document: Mapping[str, Any], made: Sequence[Operator]) -> nvt.Workflow:
    nodes: list[Any] = []
    for record in document["nodes"]:
        node = Node()
        node.op = made[record["operator"]]
        node.selector = _from_plain(record["selector"])
        node.parents = [nodes[number] for number in record["parents"]]
        node.dependencies = _each(record["dependencies"], nodes.__getitem__)
        for upstream in node.parents_with_dependencies:
            upstream.children.append(node)
        if (form := FORMS.get(type(node.op))) is not None:
            form.join(node.op, node.dependencies)
        nodes.append(node)
    workflow = Workflow(nodes[-1])
    root = Schema([from_record(record) for record in document["input_schema"]])
    workflow.fit_schema(root)
    for node, record in zip(nodes, document["nodes"], strict=True):
        for column in record["columns"]:
            stated = from_record({**column, "tags": [], "properties": {}})
            found = node.output_schema[column["name"]]
            node.output_schema.column_schemas[column["name"]] = found.with_dtype(
                stated.dtype
            ).with_shape(stated.shape)
    workflow.graph.construct_schema(root, preserve_dtypes=True)
    return workflow


def make_operator(
    path: Path, document: Mapping[str, Any], number: int, known: Mapping[str, type[Operator]]
) -> Any:
    """Make the ``number``-th operator of what the JSON file says of it."""
    record = document["operators"][number]
    name = record["operator"]
    if name not in BY_NAME and name not in known:
        raise MerlinSimError(
            f"{path}: names the operator {name!r}, which is not registered. Import the module that "
            "registers it (`merlin-sim --import package.module`), or hand its class to "
            "`load_workflow` (`operators`)."
        )
    directory = path.parent / (_folder(document["files"]) or FILES) / str(number)
    try:
        op = _operator(name, record, directory, known)
    except Exception as error:  # what an operator's own code raises of a changed argument
        said = str(error) if isinstance(error, MerlinSimError) else repr(error)
        raise MerlinSimError(f"{path}: operators[{number}], {name}: {said}") from error
    for file in _vocabularies(op, path.parent):
        require_digest(path, document, file)
    return op


def _operator(
    name: str, record: Mapping[str, Any], directory: Path, known: Mapping[str, type[Operator]]
) -> Any:
    config = _from_plain(record["config"])
    if name in BY_NAME:
        cls = BY_NAME[name]
        op = FORMS[cls].make(cls, config, directory)
        FORMS[cls].set_learned(op, _from_plain(record["learned"]), directory)
    else:
        cls = known[name]
        op = cls.from_config(config) if hasattr(cls, "from_config") else cls(**config)
        if isinstance(op, StatOperator):
            op.set_learned(_from_plain(record["learned"]), directory)
    if isinstance(op, StatOperator):
        op.fitted = True
    return op
