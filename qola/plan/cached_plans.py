"""Finds plans and explanations in the cache of answers about the request's tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from qola.codegen.types import Explanation
from qola.errors import QolaError
from qola.manifest import archs
from qola.manifest.load import ModuleSpec
from qola.plan.model import Plan
from qola.plan.request import Request

Explained = tuple[tuple[ModuleSpec, tuple[Explanation, ...]], ...]
"""What `qola.plan.planner.explain` returns."""


def find_plan(request: Request, make: Callable[[], Plan]) -> Plan:
    """Return the plan of a request, made unless it is cached.

    Raises:
        Exception: as `make`.
    """
    question = _question(request, "plan")
    with request.answers as answers:
        if question is None:
            return make()
        data = answers.find_bytes(question, lambda: make().to_json().encode("utf-8"))
    return Plan.from_json(data.decode("utf-8"))


def find_explanations(request: Request, make: Callable[[], Explained]) -> Explained:
    """Return the explanations of a request, made unless they are cached.

    Raises:
        Exception: as `make`.
    """
    question = _question(request, "explanations")
    with request.answers as answers:
        if question is None:
            return make()
        found = answers.find_json(question, lambda: _to_json(make()))
    specs = {spec.index: spec for spec in request.manifest.modules}
    return tuple((specs[index], tuple(map(_explanation, of))) for index, of in found)


def _to_json(explained: Explained) -> Sequence[object]:
    return [(spec.index, list(map(vars, explanations))) for spec, explanations in explained]


def _explanation(data: dict[str, Any]) -> Explanation:
    sequences = {name: tuple(data[name]) for name in ("archs", "kept_by", "asked_by")}
    return Explanation(**{**data, **sequences})


def _question(request: Request, kind: str) -> dict[str, object] | None:
    """Return what decides a plan of one tree, None if the archs are not known."""
    manifest = request.manifest
    try:
        chosen = archs.resolve(request.spec.archs, manifest, request.default_archs, request.native)
    except QolaError:  # the planner knows which of several errors comes first
        return None
    return {
        "kind": kind,
        "name": request.name,
        "manifest": [manifest.file, manifest.text, manifest.to_dict()],
        "modules": [spec.index for spec in manifest.modules],
        "spec": request.spec.to_json(),
        "archs": [request.default_archs, chosen],
        "rocm_version": request.rocm_version,
        "aiter": request.aiter_id,
        "patches": [
            [pin.to_json() for pin in pins] for pins in (request.aiter_patches, request.patches)
        ],
        "triton": dict(request.triton),
    }
