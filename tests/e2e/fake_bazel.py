"""Speaks for Bazel: builds what it is asked for, and writes down what that was.

Beside it lie the bundles lazy/ and full/, the compiler sdk/, pack.qpack, the programs verify and
dispatch, and plan.json. A target with a file of its name in fails/ fails with what this says, a
pack of the kernel "broken" with fails/broken; a pack of the kernel "nobody" is never tried.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
EVENTS: list[dict[str, Any]] = []


def files(name: str) -> list[dict[str, str]]:
    """Tell of a file; return what a target says of it."""
    number = {"id": str(len(EVENTS))}
    listed = [{"uri": (HERE / name).as_uri()}]
    EVENTS.append({"id": {"namedSet": number}, "namedSetOfFiles": {"files": listed}})
    return [number]


def result(target: str) -> str:
    """What a target makes."""
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
    """Build a target; return whether that went well."""
    label, name = target, target.rpartition(":")[2]
    packed = Path("pack/BUILD.bazel").read_text() if name == "pack" else ""
    if "nobody" in packed:
        said = "Error in fail: \nqola: ManifestError: no such kernel instance\nERROR: x\n"
        EVENTS.append({"id": {"progress": {}}, "progress": {"stderr": said}})
        return False
    if "broken" in packed:
        label, name = "@@qola_compile~//:kernels", "broken"
    words = HERE / "fails" / name
    made: dict[str, Any] = {"success": not words.exists()}
    output = f"bazel-out/cfg/bin/{name}.pic.o"
    child = {"actionCompleted": {"label": label, "primaryOutput": output}}
    if made["success"]:
        groups = {"plan": files("plan.json"), "default": files(result(target))}
        made["outputGroup"] = [{"name": n, "fileSets": sets} for n, sets in groups.items()]
    else:
        action = {"type": "QolaCompile", "exitCode": 1, "stderr": {"uri": words.as_uri()}}
        EVENTS.append({"id": child, "action": action})
    done = {"targetCompleted": {"label": target}}
    EVENTS.append({"id": done, "children": [] if made["success"] else [child], "completed": made})
    return bool(made["success"])


if __name__ == "__main__":
    if "shutdown" in sys.argv:
        sys.exit()
    (stream,) = (a.partition("=")[2] for a in sys.argv if a.startswith("--build_event_json_file="))
    targets = sys.argv[sys.argv.index("--") + 1 :]
    with (HERE / "asked").open("a") as asked:
        print(*targets, file=asked)
    for word in sys.argv:
        if word.startswith("--execution_log_json_file="):
            Path(word.partition("=")[2]).write_text(" ".join(targets))
    built = [build(target) for target in targets]
    code = 0 if all(built) else 1
    EVENTS.append({"id": {"buildFinished": {}}, "finished": {"exitCode": {"code": code}}})
    Path(stream).write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    sys.exit(code)
