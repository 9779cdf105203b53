"""examples/ci/qola.yml: its commands exist, and only some of its jobs may write."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from qola.cli.command_line import build_parser

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "examples/ci/qola.yml"
TEXT = WORKFLOW.read_text(encoding="utf-8")
# YAML 1.1 reads the key "on" as true.
JOBS: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["jobs"]


def read_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each Bazel command of the jobs, for each entry of their matrix."""
    for name, job in JOBS.items():
        rows = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
        for row, step in itertools.product(rows, job["steps"]):
            values = {**yaml.safe_load(TEXT)["env"], **step.get("env", {})}
            text: str = step.get("run", "")
            for key, value in values.items():
                for column, entry in row.items():
                    value = value.replace(f"${{{{ matrix.{column} }}}}", entry)  # noqa: PLW2901
                text = text.replace(f"${{{key}}}", value)
            for line in text.splitlines():
                arguments = shlex.split(line)
                if arguments and arguments[0] == "./bazelw":
                    yield name, arguments[1:]


COMMANDS = list(read_commands())


def test_commands_exist() -> None:
    """Prevents: a workflow with an option, configuration or target that qola does not have."""
    assert {name for name, _ in COMMANDS} == JOBS.keys()
    bazelrc = (ROOT / ".bazelrc").read_text(encoding="utf-8")
    configs = set(re.findall(r"^(?:build|common|test):(\S+)", bazelrc, re.M))
    declared = ("BUILD.bazel", "rules/private/settings.bzl")
    build = "".join((ROOT / name).read_text(encoding="utf-8") for name in declared)
    for name, arguments in COMMANDS:
        if arguments[:2] == ["run", "//:qola"]:
            # Invalid arguments end the process with a usage message.
            build_parser().parse_args(arguments[arguments.index("--") + 1 :])
            continue
        assert arguments[0] in ("build", "test"), (name, arguments)
        for word in arguments[1:]:
            option, _, value = word.partition("=")
            if option == "--config":
                assert value in configs, (name, word)
            elif option.startswith("--@qola//:"):
                assert f'name = "{option.rpartition(":")[2]}"' in build, (name, word)
            elif option == "--credential_helper":
                host, _, path = value.partition("=")
                assert host == "cache.example.org"
                assert (ROOT / path.removeprefix("%workspace%/")).is_file()
            elif word.startswith("//:"):
                target = word.removeprefix("//:").removesuffix("_tar")
                assert f'name = "{target}"' in build, (name, word)
            else:
                assert word == "//..." or option == "--remote_cache", (name, word)


def test_permission_to_write() -> None:
    """Prevents: a pull request, which any user can open, that writes to the shared cache."""
    for name, job in JOBS.items():
        text = json.dumps(job)
        writes = "--config=remote-cache-write" in text
        # publish passes other options to write, since qola build has a separate workspace.
        assert writes == (name in ("main", "nightly"))
        assert ("secrets." in text) == (name not in ("compat", "pull-request"))
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
