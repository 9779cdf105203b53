"""Has Bazel compile kernels of lazy libraries and pack them: ``qola pack``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from qola.aiter.attention import ATTENTION
from qola.build import workspace
from qola.build.bazel import BuildOptions, build
from qola.build.events import DEFAULT_OUTPUTS, EventReader, TargetResult
from qola.build.forms import ChoiceError
from qola.build.results import describe_failure, results_of
from qola.build.setup import Chosen, Progress, set_up, workspace_locked
from qola.errors import Finding
from qola.files import write_if_changed

SUFFIX = ".qpack"


def read_list(text: str, place: str) -> list[str]:
    """Return the kernels of a list as kernel_pack takes them: ``<name>`` or ``<name>:<arch>``.

    A line is a name and perhaps an arch, as QOLA_RECORD and qola-kernels write it.

    Raises:
        ChoiceError: a line has more words than that.
    """
    found: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if len(words) > 2:
            raise ChoiceError(
                Finding(f"{place}:{number}", line.strip(), "a kernel's name, and perhaps an arch")
            )
        if words:
            found[":".join(words)] = None
    return [*found]


def build_pack(
    chosen: Chosen,
    kernels: Sequence[str],
    output: Path,
    options: BuildOptions,
    environ: Mapping[str, str],
    progress: Progress,
) -> str:
    """Compile kernels, as Bazel does for libraries, and put them into a pack.

    Args:
        kernels: `<name>` or `<name>:<arch>`; none: all of the modules.
        output: the pack, absolute; replaced as a whole, and only when all was compiled.

    Returns:
        The tools' words about what failed; "" where the pack is there.

    Raises:
        QolaError: nothing could be built: the manifest, the AITER tree, the plan or this machine
            is at fault, or there is no such kernel, which is found before anything is compiled.
        OSError: the pack cannot be written.
    """
    setup = set_up(chosen, environ)
    names = [module.name for module in chosen.modules if module.name in ATTENTION]
    place, directory = chosen.manifest.file, setup.directory
    if not names:
        raise ChoiceError(
            Finding(place, "no module with kernels", f"one of {', '.join(ATTENTION)}")
        )
    with workspace_locked(directory, progress):
        setup.write()
        text = setup.made.pack_file(names, kernels)
        write_if_changed(directory / workspace.PACK_FILE, text)
        progress(f"{place}: pack of {', '.join(names)}, AITER {chosen.aiter.describe()}")
        targets = [workspace.PACK]
        events = build(setup.bazel, directory, targets, options, environ, note=progress)
        (result,) = results_of(events, {"pack": workspace.PACK}).values()
        return _copy(result, events, output)


def _copy(result: TargetResult, events: EventReader, output: Path) -> str:
    """Put the pack in its place; return what failed where there is none."""
    packs = [path for path in result.outputs.get(DEFAULT_OUTPUTS, ()) if path.suffix == SUFFIX]
    if not result.success:
        return describe_failure(result, events)
    if not packs:
        return "no pack among the outputs"
    output.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that it is there as a whole or not at all.
    with tempfile.TemporaryDirectory(prefix=".qola-", dir=output.parent) as aside:
        copy = Path(aside, output.name)
        shutil.copyfile(packs[0], copy)
        copy.chmod(0o644)
        os.replace(copy, output)
    return ""
