"""Prints how many files and bytes the actions of a build read, by kind of action and of input.

    ./bazelw build --execution_log_json_file=/tmp/log.json //:quickstart_libmha_fwd
    ./bazelw --in-tree python3 bench/action_inputs.py /tmp/log.json

A clean output base logs every action, those that come from a cache too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.action_inputs_lib import summarize, to_table  # noqa: E402
from qola.cli.tables import to_text  # noqa: E402
from tools.execution_log.log import read_spawns  # noqa: E402


def main() -> None:
    """Read a log and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("log", type=Path, help="what --execution_log_json_file wrote")
    parser.add_argument("--mnemonic", action="append", help="only this kind of action; repeatable")
    parser.add_argument("--label", default="", help="only targets whose label contains this")
    args = parser.parse_args()
    spawns = (
        spawn
        for spawn in read_spawns(args.log)
        if args.label in spawn.label and (not args.mnemonic or spawn.mnemonic in args.mnemonic)
    )
    print(to_text(to_table(summarize(spawns))))


if __name__ == "__main__":
    main()
