"""``python -m qola.aiter_record``: the recorder, which is a file that imports nothing of qola.

It is runtime/record/aiter_record.py (docs/guide/recording.md).
"""

import runpy

from qola.common.ruleset import ruleset_root

if __name__ == "__main__":
    runpy.run_path(str(ruleset_root() / "runtime/record/aiter_record.py"), run_name="__main__")
