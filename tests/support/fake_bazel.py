"""A fake Bazel: a program that writes the events of an invented build."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.folders import write

_HEAD = """\
import json, os, sys, time
from pathlib import Path
targets = sys.argv[sys.argv.index("--") + 1 :]
(events,) = (a.partition("=")[2] for a in sys.argv if a.startswith("--build_event_json_file="))

def say(text):
    print(text, file=sys.stderr, flush=True)

def event(**values):
    with open(events, "a") as file:
        file.write(json.dumps(values) + "\\n")

def progress(text):
    event(id={"progress": {}}, progress={"stderr": text})

def complete(target, children=(), **values):
    identity = {"targetCompleted": {"label": "@@" + target}}
    event(id=identity, completed=values, children=children)

def build(target, file):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"modules": []}')
    files = [{"name": file.name, "uri": file.as_uri()}]
    event(id={"namedSet": {"id": target}}, namedSetOfFiles={"files": files})
    group = [{"name": "default", "fileSets": [{"id": target}]}]
    complete(target, success=True, outputGroup=group)

def fail(target, stderr):
    Path("stderr").write_text(stderr)
    action = {"success": False, "type": "QolaCompile", "exitCode": 1}
    action["stderr"] = {"uri": Path("stderr").absolute().as_uri()}
    identity = {"actionCompleted": {"label": "@@x//fwd:kernel.object"}}
    event(id=identity, action=action)
    complete(target, [identity])

def finish(code=0):
    # Bazel leaves out fields with default values.
    event(id={"buildFinished": {}}, finished={"exitCode": {"code": code} if code else {}})
    sys.exit(code)

"""


def write_bazel(directory: Path, text: str) -> Path:
    """Write a fake Bazel that runs Python text, which calls the functions above."""
    program = write(directory, {"bazel": f"#!{sys.executable}\n{_HEAD}{text}"}) / "bazel"
    program.chmod(0o755)
    return program
