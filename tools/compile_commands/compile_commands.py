"""Writes compile_commands.json with the compile command of each file, for clangd and editors.

Paths are below the workspace and Bazel's output base: they exist outside of a sandbox, and do not
depend on links that Bazel replaces at every build.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qola.build.bazel import child_environment, find_bazel
from qola_base.errors import Finding, QolaError, ToolchainError
from qola_base.files import write_if_changed

#: Mnemonics of compiles of C++ files and of kernel instances.
MNEMONICS = ("CppCompile", "QolaCompile")

DEFAULT_TARGETS = ("//:quickstart_lazy", "//:quickstart_libmha_fwd")

_FILE = "compile_commands.json"
#: Prefixes of paths in other repositories and of outputs, in Bazel's commands.
_EXTERNAL, _OUTPUT = "external/", "bazel-out/"
#: Prefix of outputs with --experimental_output_paths=strip.
_SHORTENED = "bazel-out/cfg/"
_BATCH = "/compile_batch.sh"


@dataclass(frozen=True)
class Places:
    """Absolute paths of Bazel's directories.

    Attributes:
        output_base: contains external/, the other repositories.
    """

    workspace: str
    output_base: str
    execution_root: str


def entries(graph: Mapping[str, Any], places: Places) -> list[dict[str, Any]]:
    """Return the entries of compile_commands.json, sorted.

    Args:
        graph: output of bazel aquery --output=jsonproto.
    """
    outputs = _output_paths(graph)
    found = []
    actions = [a for a in graph.get("actions", ()) if a["mnemonic"] in MNEMONICS]
    batched: set[str] = set()
    # Batches first: libraries contain these, rather than single compiles of the same instances.
    for action in sorted(actions, key=lambda a: not _is_batch(a["arguments"])):
        output = outputs[action["primaryOutputId"]]
        if _EXTERNAL + "bazel_tools/" in output:
            continue  # Bazel's own programs
        # The path below bin/ is the same in all configurations.
        own = {word.partition("/bin/")[2] for word in action["arguments"] if word.endswith(".cpp")}
        if _is_batch(action["arguments"]):
            batched |= own
        elif own & batched:
            continue
        for words in _commands(action["arguments"]):
            arguments = list(_arguments(words, output, places))
            found.append(
                {
                    "arguments": arguments,
                    "directory": places.workspace,
                    "file": arguments[arguments.index("-c") + 1],
                    "output": _absolute(output, places),
                }
            )
    return sorted(found, key=lambda entry: (str(entry["file"]), str(entry["output"])))


def _is_batch(arguments: Sequence[str]) -> bool:
    return arguments[0].endswith(_BATCH)


def _commands(arguments: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the compiler's command; for a batch, the commands of it and its kernel instances."""
    if not _is_batch(arguments):
        yield arguments
        return
    end = arguments.index("--")
    for source in arguments[1:end]:
        yield [*arguments[end + 1 :], source]


def _arguments(words: Sequence[str], output: str, places: Places) -> Iterator[str]:
    configured = "/".join(output.split("/")[:2]) + "/"
    skip = False
    for word in words:
        if skip or word in ("-MF", "-MD", "-o"):
            skip = not skip and word in ("-MF", "-o")
            continue
        # Compressed, the output of a preprocessor is unreadable.
        if not word.startswith(("-frandom-seed=", "--offload-compress")):
            yield _absolute(word.replace(_SHORTENED, configured), places)


def _absolute(word: str, places: Places) -> str:
    """Return an argument with its path, if any, made independent of the execution root."""
    for start, root in (
        (_EXTERNAL, places.output_base),
        (_OUTPUT, places.execution_root),
    ):
        if word.startswith(start):
            return f"{root}/{word}"
        option, sign, value = word.partition("=")
        if sign and value.startswith(start):
            return f"{option}={root}/{value}"
        for flag in ("-I", "-L"):
            if word.startswith(flag + start):
                return f"{flag}{root}/{word.removeprefix(flag)}"
    return word


def _output_paths(graph: Mapping[str, Any]) -> dict[int, str]:
    fragments = {fragment["id"]: fragment for fragment in graph.get("pathFragments", ())}

    def path(number: int) -> str:
        fragment = fragments[number]
        parent = fragment.get("parentId")
        return (f"{path(parent)}/" if parent else "") + str(fragment["label"])

    return {artifact["id"]: path(artifact["pathFragmentId"]) for artifact in graph["artifacts"]}


def _ask(bazel: Sequence[str], workspace: Path, environ: Mapping[str, str], *args: str) -> str:
    run = subprocess.run(
        [*bazel, *args],
        cwd=workspace,
        env=child_environment(environ),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise ToolchainError(
            Finding(
                f"bazel {args[0]}",
                f"exit code {run.returncode}",
                "targets that Bazel can analyse",
                "see Bazel's messages above",
            ),
            f"{_FILE} cannot be written",
        )
    return run.stdout


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="compile_commands", description=__doc__)
    parser.add_argument(
        "targets", nargs="*", default=DEFAULT_TARGETS, help=f"default: {' '.join(DEFAULT_TARGETS)}"
    )
    targets = parser.parse_args(argv).targets
    workspace = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "."))
    try:
        bazel = find_bazel(os.environ, workspace)
        query = f'mnemonic("{"|".join(MNEMONICS)}", deps(set({" ".join(targets)})))'
        graph = json.loads(
            _ask(bazel, workspace, os.environ, "aquery", "--output=jsonproto", query)
        )
        info = _ask(bazel, workspace, os.environ, "info", "output_base", "execution_root")
        known = dict(line.split(": ", 1) for line in info.splitlines())
        places = Places(str(workspace), known["output_base"], known["execution_root"])
        found = entries(graph, places)
    except QolaError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    write_if_changed(workspace / _FILE, json.dumps(found, indent=1) + "\n")
    print(f"{workspace / _FILE}: {len(found)} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
