"""examples/ci/qola.yml: only some jobs may write. test_pages.py checks its commands."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "examples/ci/qola.yml"
TEXT = WORKFLOW.read_text(encoding="utf-8")
# YAML 1.1 reads the key "on" as true.
JOBS: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["jobs"]


def test_permission_to_write() -> None:
    """Prevents: a pull request, which any user can open, that writes to the shared cache."""
    for name, job in JOBS.items():
        text = json.dumps(job)
        writes = "--config=remote-cache-write" in text
        # publish passes other options to write, since qola build has a separate workspace.
        assert writes == (name in ("main", "nightly"))
        assert ("secrets." in text) == (name not in ("compat", "pull-request", "versions"))
        assert job["permissions"] == {"contents": "read"}
        assert 0 < job["timeout-minutes"] < 360


def test_credential_helper() -> None:
    """Prevents: helper output that Bazel cannot parse, or no error for a missing password."""
    helper = ROOT / "examples/ci/cache-credentials"
    assert os.access(helper, os.X_OK)
    request = json.dumps({"uri": "https://cache.example.org/qola/ac/1"})
    env = {"PATH": os.environ["PATH"], "CACHE_PASSWORD": "it's $ecret " + 60 * "x"}
    run = subprocess.run(
        [helper, "get"], input=request, env=env, capture_output=True, text=True, check=True
    )
    (value,) = json.loads(run.stdout)["headers"]["Authorization"]
    kind, _, token = value.partition(" ")
    assert kind == "Basic"
    assert base64.b64decode(token).decode() == f"ci:{env['CACHE_PASSWORD']}"
    del env["CACHE_PASSWORD"]
    run = subprocess.run([helper, "get"], input=request, env=env, text=True, check=False)
    assert run.returncode != 0
