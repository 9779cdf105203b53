"""Compiles kernels of lazy libraries with Bazel and packs them, for ``qola pack``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from qola.build.bazel import BuildOptions, build
from qola.build.events import DEFAULT_OUTPUTS
from qola.build.forms import ChoiceError, modules_with_kernels
from qola.build.results import describe_failure, results_of
from qola.build.setup import ResolvedBuild
from qola.build.workspace import PACK, PACK_FILE, set_up
from qola_base.errors import Finding
from qola_base.files import whole, write_if_changed
from qola_base.progress import log

SUFFIX = ".qpack"

_WORD = re.compile(r"[A-Za-z0-9_.+-]{1,500}(:[a-z0-9]{1,20})?")


def read_list(text: str, place: str) -> list[str]:
    """Return the kernels of a list as qola_kernel_pack takes them: ``<name>`` or ``<name>:<arch>``.

    A line is a name and optionally an arch, as written by QOLA_RECORD and qola-kernels. Other lines
    raise ChoiceError.
    """
    found: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if len(words) > 2 or not all(map(_WORD.fullmatch, words)):
            raise ChoiceError(
                Finding(
                    f"{place}:{number}",
                    line.strip()[:200],
                    "a kernel's name, and optionally an arch",
                    f"write what `qola list` prints, or remove line {number}",
                )
            )
        if words:
            found[":".join(words)] = None
    return [*found]


def build_pack(
    chosen: ResolvedBuild,
    kernels: Sequence[str],
    output: Path,
    options: BuildOptions,
    environ: Mapping[str, str],
) -> str:
    """Compile kernels, with the actions of libraries, and put them into a pack.

    Args:
        kernels: `<name>` or `<name>:<arch>`; empty for all kernels of the modules.
        output: absolute path of the pack; replaced atomically when all kernels were compiled.

    Returns:
        The tools' error messages; "" on success.

    Raises:
        QolaError: nothing could be built, or no module has a requested kernel.
    """
    workspace = set_up(chosen, environ)
    place, directory = chosen.manifest.file, workspace.directory
    names = modules_with_kernels(chosen.modules, place)
    with workspace.opened():
        write_if_changed(directory / PACK_FILE, workspace.pack_file(names, kernels))
        log.info(f"{place}: pack of {', '.join(names)}, AITER {chosen.aiter.describe()}")
        events = build(workspace.bazel, directory, [PACK], options, environ)
        (result,) = results_of(events, {"pack": PACK}).values()
        packs = [path for path in result.outputs.get(DEFAULT_OUTPUTS, ()) if path.suffix == SUFFIX]
        if not result.success:
            return describe_failure(result, events)
        if not packs:
            return "no pack among the outputs"
        with packs[0].open("rb") as source, whole(output) as file:
            shutil.copyfileobj(source, file, 1 << 20)
        return ""
