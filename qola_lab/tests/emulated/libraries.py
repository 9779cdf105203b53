"""Libraries whose paths Bazel passes to tests in environment variables."""

from __future__ import annotations

import os
from pathlib import Path

from qola_lab.verify.host import Built

RUNTIME = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()


def built_library(module: str, manifest: str = "CI") -> Built:
    """Return the library of a module in a manifest."""
    library, caller = (
        Path(os.environ[f"QOLA_TEST_{manifest}_{module}{end}"]).resolve() for end in ("", "_CALLER")
    )
    # Do not resolve the link: dispatch and sources are next to it in the runfiles.
    plan = Path(os.environ[f"QOLA_TEST_{manifest}_{module}_EMULATED"])
    return Built(module, plan.parent, library, caller, RUNTIME)
