"""Plans that are kept, and what decides them.

The key of a plan has all that is asked for and, by content, every file of the AITER tree and of
qola: which of them a plan depends on need not be known. A plan is kept only where the processes of
generators looked at nothing else, and where the tree is the same before and after.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from qola.aiter.tree import AiterTree
from qola.codegen import kept
from qola.codegen.answers import own_inputs
from qola.codegen.types import Explanation, to_fields
from qola.errors import QolaError
from qola.fetch.pins import pinned_id
from qola.files import sha256_of_json
from qola.manifest import archs
from qola.manifest.load import ModuleSpec
from qola.plan.model import Plan
from qola.plan.request import Request

LIMIT = 1 << 30
"""The most bytes of a tree: to read more takes longer than to plan."""

Explained = tuple[tuple[ModuleSpec, tuple[Explanation, ...]], ...]
"""What `qola.plan.planner.explain` returns."""

_T = TypeVar("_T")


def kept_plan(request: Request, make: Callable[[], Plan]) -> Plan:
    """Return the plan of a request, which is made unless it is known.

    Raises:
        Exception: as `make`.
    """
    return _kept(request, "plan", make, Plan.to_json, Plan.from_json)


def kept_explanations(request: Request, make: Callable[[], Explained]) -> Explained:
    """Return the explanations of a request, which are made unless they are known.

    Raises:
        Exception: as `make`.
    """
    specs = {spec.index: spec for spec in request.manifest.modules}

    def read(text: str) -> Explained:
        found = json.loads(text)
        return tuple((specs[index], tuple(map(_explanation, of))) for index, of in found)

    return _kept(request, "explain", make, _explained_text, read)


def kept_json(directory: Path, tree: AiterTree, question: object, make: Callable[[], Any]) -> Any:
    """Return the answer to a question about a tree that qola fetched, made unless it is known.

    Of other trees nothing is kept.

    Args:
        directory: has the answers.
        question: what decides the answer beside the tree.
    """
    root = os.path.abspath(tree.root)
    before = _stamps(root) if pinned_id(tree.root) else None
    content = _contents(before) if before else ""
    if not content:
        return make()
    places = [str(tree.root), os.path.realpath(root)]
    key = sha256_of_json([question, places, content, own_inputs()])
    data = kept.get(directory, key)
    if data is not None:
        return json.loads(data)
    made = make()
    if not tree.elsewhere and _stamps(root) == before:
        kept.put(directory, key, json.dumps(made).encode("ascii"))
    return made


def _explained_text(explained: Explained) -> str:
    plain = [
        (spec.index, [{**vars(e), "fields": dict(e.fields)} for e in explanations])
        for spec, explanations in explained
    ]
    return json.dumps(plain)


def _explanation(data: dict[str, Any]) -> Explanation:
    sequences = {name: tuple(data[name]) for name in ("archs", "kept_by", "asked_by")}
    return Explanation(**{**data, **sequences, "fields": to_fields(data["fields"])})


def _kept(
    request: Request,
    what: str,
    make: Callable[[], _T],
    write: Callable[[_T], str],
    read: Callable[[str], _T],
) -> _T:
    root = os.path.abspath(request.tree.root)
    before = _stamps(root) if request.answers else None
    tree = _contents(before) if before else ""
    key = _key(request, what, tree) if tree else ""
    if request.answers is None or not key:
        return make()
    data = kept.get(request.answers, key)
    if data is not None:
        return read(data.decode("utf-8"))
    made = make()
    if not request.tree.elsewhere and _stamps(root) == before:
        kept.put(request.answers, key, write(made).encode("utf-8"))
    return made


def _stamps(root: str) -> dict[str, tuple[object, ...]] | None:
    """Return what tells of each file of a tree whether it changes meanwhile, sorted by path.

    Returns:
        None for what cannot be followed: links to directories, devices, more than `LIMIT`.
    """
    found: dict[str, tuple[object, ...]] = {}
    pending, size = [root], 0
    try:
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    link = entry.is_symlink()
                    if entry.is_dir() and not link:
                        # Byte code is not read (qola.codegen.bytecode).
                        pending += [] if entry.name in (".git", "__pycache__") else [entry.path]
                        continue
                    if not entry.is_file():
                        return None
                    status = entry.stat()
                    size += status.st_size
                    stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                    found[entry.path] = (*stamp, os.path.realpath(entry.path) if link else "")
    except OSError:
        return None
    return dict(sorted(found.items())) if size <= LIMIT else None


def _contents(stamps: Mapping[str, tuple[object, ...]]) -> str:
    """Return the digest of all files: where each is, or what it is a link to, and its content."""
    digest = hashlib.sha256()
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    try:
        for path, stamp in stamps.items():
            own = hashlib.sha256()
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                while count := os.readv(descriptor, [buffer]):
                    own.update(view[:count])
            finally:
                os.close(descriptor)
            digest.update(f"{path}\0{stamp[-1]}\0".encode("utf-8", "surrogateescape"))
            digest.update(own.digest())
    except OSError:
        return ""
    return digest.hexdigest()


def _key(request: Request, what: str, tree: str) -> str:
    """Return the digest of all that decides a plan, "" where the archs are not known."""
    manifest = request.manifest
    try:
        chosen = archs.resolve(request.archs, manifest, request.default_archs, request.native)
    except QolaError:  # whose turn it is among errors, the planner knows
        return ""
    asked = {
        "what": what,
        "name": request.name,
        "manifest": [manifest.file, manifest.text, manifest.to_dict()],
        "modules": [spec.index for spec in manifest.modules],
        "archs": [request.archs, request.default_archs, chosen],
        "mode": request.mode,
        "rocm_version": request.rocm_version,
        "aiter": [request.aiter_id, request.overridden],
        "patches": [
            [vars(pin) for pin in pins] for pins in (request.aiter_patches, request.patches)
        ],
        "triton": dict(request.triton),
        "level": request.level,
        "root": [str(request.tree.root), os.path.realpath(request.tree.root)],
    }
    return sha256_of_json({"asked": asked, "tree": tree, **own_inputs()})
