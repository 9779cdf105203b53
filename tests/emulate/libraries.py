"""Libraries that a test is told of by variables."""

from __future__ import annotations

import os
from pathlib import Path

from qola.verify.host import Built


def built(module: str, manifest: str = "CI") -> Built:
    """Return a module's library of a manifest."""
    library, caller = (
        Path(os.environ[f"QOLA_TEST_{manifest}_{module}{end}"]).resolve() for end in ("", "_CALLER")
    )
    runtime = Path(os.environ["QOLA_TEST_FAKE_HIP"]).resolve()
    # Not resolved: dispatch and sources are beside it among the runfiles.
    plan = Path(os.environ[f"QOLA_TEST_{manifest}_{module}_EMULATED"])
    return Built(module, plan.parent, library, caller, runtime)
