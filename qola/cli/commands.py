"""The commands of `qola`, without their modules: the list of commands imports none of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        module: the module of `qola.cli` that adds the command to the parser; "" for `help`.
        summary: one line for the list of commands, without a full stop.
    """

    module: str
    summary: str


COMMANDS: Mapping[str, Command] = {
    "plan": Command("plan", "count the libraries and kernel instances that a manifest builds"),
    "list": Command("plan", "list the kernel instances of a manifest, one per line"),
    "explain": Command(
        "plan", "explain why kernel instances are in or out; without a query, count them by rule"
    ),
    "compat": Command("compat", "check which directions and modules an AITER tree can build"),
    "modules": Command("modules", "list the modules of an AITER tree, and which can be built"),
    "build": Command("build", "build the libraries of a manifest"),
    "checkout": Command("build", "prepare a patched AITER tree without building"),
    "pack": Command("build", "compile kernels of lazy libraries and put them into one file"),
    "verify": Command(
        "verify", "build the libraries of a manifest, emulate their kernels, compare with float64"
    ),
    "dispatch": Command("dispatch", "find the kernel that a problem launches, or why none fits"),
    "report": Command("report", "write a page about built libraries: kernels, resources, sizes"),
    "fetch": Command("prebuilt", "install a prebuilt bundle of a manifest without building"),
    "publish": Command("prebuilt", "build the bundle of a manifest and upload it"),
    "keygen": Command("prebuilt", "make a key pair, PREFIX.key and PREFIX.pub, to sign bundles"),
    "init": Command("init", "write a starter manifest with comments"),
    "doctor": Command("doctor", "check this machine for the programs and libraries qola uses"),
    "hipcc": Command("hipcc", "print the path of the pinned hipcc, for CMake and make"),
    "cache": Command("housekeeping", "show the size of qola's caches, and remove old entries"),
    "completion": Command("completion", "print a script that completes commands in a shell"),
    "help": Command("", "show the help of a command; without one, list the commands"),
}
