"""A fake Bazel: writes results for the requested targets, and appends the targets to a file.

Its directory contains the bundles lazy/ and full/, the compiler sdk/, pack.qpack, the programs
verify and dispatch, and plan.json. A target with a file fails/NAME fails with the text of that
file. A pack of the kernel "broken" fails with fails/broken; a pack of the kernel "nobody" fails in
the analysis.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EVENTS: list[dict[str, Any]] = []


def files(name: str) -> list[dict[str, str]]:
    """Append an event for a file; return the reference that a target uses for it."""
    number = {"id": str(len(EVENTS))}
    listed = [{"uri": (HERE / name).as_uri()}]
    EVENTS.append({"id": {"namedSet": number}, "namedSetOfFiles": {"files": listed}})
    return [number]


def result(target: str) -> str:
    """Return the path of a target's output."""
    if target == "//bundle:bundle":
        return "lazy" if "_lazy" in Path("bundle/BUILD.bazel").read_text() else "full"
    if target == "//pack:pack":
        return "pack.qpack"
    if target == "//:hipcc":
        return "sdk/bin/hipcc"
    if target in ("//verify:verify", "//dispatch:dispatch"):
        return target.rpartition(":")[2]
    library = "deepgemm.so" if "deepgemm" in target else "te_libmha_fwd.so"
    return f"{'lazy' if target.endswith('_lazy') else 'full'}/lib/{library}"


def build(target: str) -> bool:
    """Build a target; return whether the build succeeded."""
    label, name = target, target.rpartition(":")[2]
    packed = Path("pack/BUILD.bazel").read_text() if name == "pack" else ""
    if "nobody" in packed:
        error_text = "Error in fail: \nqola: ManifestError: no such kernel instance\nERROR: x\n"
        EVENTS.append({"id": {"progress": {}}, "progress": {"stderr": error_text}})
        return False
    if "broken" in packed:
        label, name = "@@qola_compile~//:kernels", "broken"
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
