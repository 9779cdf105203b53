"""A fake Bazel: writes results for the requested targets, and appends the targets to a file.

Its directory contains the bundles lazy/ and full/, the compiler sdk/, pack.qpack, the programs
verify and dispatch, and plan.json. repository.json has the targets of the manifest's repository,
and the symbols of qola's .bzl files: a target of the workspace has to exist, and so have those that
it names. A target with a file fails/NAME fails with the text of that file. A pack of the kernel
"broken" fails with fails/broken; a pack of the kernel "nobody" fails in the analysis.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
REPOSITORY: dict[str, Any] = json.loads((HERE / "repository.json").read_text())
EVENTS: list[dict[str, Any]] = []


def declared(package: str) -> dict[str, dict[str, Any]]:
    """Return the attributes of the targets of a package of the workspace, by name."""
    found: dict[str, dict[str, Any]] = {}

    def declare(**values: Any) -> None:
        found[values["name"]] = values

    def load(label: str, *symbols: str) -> None:
        for symbol in symbols:
            if symbol not in REPOSITORY["symbols"][label]:
                sys.exit(f"file {label!r} does not contain symbol {symbol!r}")
            names[symbol] = declare

    names: dict[str, Any] = {"load": load, "filegroup": declare}
    exec(Path(package, "BUILD.bazel").read_text(), names)
    return found


def labels(values: dict[str, Any]) -> list[str]:
    """Return the labels in a target's attributes."""
    listed = [
        v for value in values.values() for v in (value if isinstance(value, list) else [value])
    ]
    return [v for v in map(str, listed) if v.startswith(("//", "@")) and "__pkg__" not in v]


def find(label: str) -> dict[str, Any]:
    """Return the attributes of a target of the workspace or of the manifest's repository.

    Raises:
        SystemExit: it does not exist, or one that it names does not.
    """
    repository, _, rest = label.partition("//")
    package, _, name = rest.partition(":")
    if repository == "@qola":
        return {}
    targets = REPOSITORY["targets"] if repository else declared(package)
    if name not in targets:
        sys.exit(f"no such target {label!r}")
    for other in [] if repository else labels(targets[name]):
        find(other)
    return dict(targets[name])


def is_lazy(label: str) -> bool:
    """Return whether a library of the workspace has no kernels, by the manifest's repository."""
    library = find(find(label)["library"])
    return bool(library.get("lazy"))


def files(name: str) -> list[dict[str, str]]:
    """Append an event for a file; return the reference that a target uses for it."""
    number = {"id": str(len(EVENTS))}
    listed = [{"uri": (HERE / name).as_uri()}]
    EVENTS.append({"id": {"namedSet": number}, "namedSetOfFiles": {"files": listed}})
    return [number]


def result(target: str) -> str:
    """Return the path of a target's output."""
    values = find(target)
    if target == "//bundle:bundle":
        return "lazy" if any(map(is_lazy, values["libraries"])) else "full"
    if target == "//pack:pack":
        return "pack.qpack"
    if target == "//:made":
        return "sdk/bin/hipcc"
    if target in ("//verify:verify", "//dispatch:dispatch"):
        return target.rpartition(":")[2]
    library = "deepgemm.so" if "deepgemm" in target else "te_libmha_fwd.so"
    return f"{'lazy' if is_lazy(target) else 'full'}/lib/{library}"


def build(target: str) -> bool:
    """Build a target; return whether the build succeeded."""
    label, name = target, target.rpartition(":")[2]
    packed = find(target).get("kernels", []) if name == "pack" else []
    if "nobody" in packed:
        error_text = "Error in fail: \nqola: ManifestError: no such kernel instance\nERROR: x\n"
        EVENTS.append({"id": {"progress": {}}, "progress": {"stderr": error_text}})
        return False
    if "broken" in packed:
        label, name = "@@rules_hip~//kernels:kernels", "broken"
    failure = HERE / "fails" / name
    completed: dict[str, Any] = {"success": not failure.exists()}
    output = f"bazel-out/cfg/bin/{name}.pic.o"
    child = {"actionCompleted": {"label": label, "primaryOutput": output}}
    if completed["success"]:
        groups = {"plan": files("plan.json"), "default": files(result(target))}
        completed["outputGroup"] = [{"name": n, "fileSets": sets} for n, sets in groups.items()]
    else:
        action = {"type": "QolaCompile", "exitCode": 1, "stderr": {"uri": failure.as_uri()}}
        EVENTS.append({"id": child, "action": action})
    completed_id = {"targetCompleted": {"label": target}}
    EVENTS.append(
        {
            "id": completed_id,
            "children": [] if completed["success"] else [child],
            "completed": completed,
        }
    )
    return bool(completed["success"])


if __name__ == "__main__":
    if "shutdown" in sys.argv:
        sys.exit()
    (stream,) = (a.partition("=")[2] for a in sys.argv if a.startswith("--build_event_json_file="))
    targets = sys.argv[sys.argv.index("--") + 1 :]
    with (HERE / "asked").open("a") as file:
        print(*targets, file=file)
    for argument in sys.argv:
        if argument.startswith("--execution_log_json_file="):
            Path(argument.partition("=")[2]).write_text(" ".join(targets))
    built = [build(target) for target in targets]
    code = 0 if all(built) else 1
    EVENTS.append({"id": {"buildFinished": {}}, "finished": {"exitCode": {"code": code}}})
    Path(stream).write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    sys.exit(code)
