"""pip_repository: Python packages from hash-pinned requirements, by the machine's own pip."""

load("@bazel_skylib//lib:shell.bzl", "shell")
load("//lib:finding.bzl", "finding")
load(":host_python.bzl", "PIP_ENVIRONMENT", "host_python")
load(":progress.bzl", "report_step")

_BUILD = '''# Written by @rules_hip//repositories:pip_repository.bzl.

load("@rules_hip//lib:python.bzl", "python_library")

package(default_visibility = ["//visibility:public"])

exports_files(["requirements.txt"])
'''

_FILES = '''
python_library(
    name = "packages",
    srcs = glob(["site/**/*.py"], allow_empty = True),
    data = glob(
        ["site/**"],
        exclude = ["site/**/*.py", "site/**/__pycache__/**"],
        allow_empty = True,
    ),
    imports = ["site"],{python}
)
'''

# Otherwise each program gets a link to thousands of files, and another in its sandbox.
_DIRECTORY = '''
python_library(
    name = "packages",
    data = ["site"],
    imports = ["site"],{python}
)
'''

# For python_tool (lib/python.bzl).
_VERSION = '''
    python_version = "{version}",
    python_version_file = "python_version.txt",'''

# Libraries of bazelw's private tree, which this Python and built programs need, are only there.
_IN_TREE = """[ -e /usr/share/qola/registry ] || exec {bazelw} --in-tree {python} "$@"
"""

_PYTHON = """\
#!/bin/sh
# Starts the Python for which these packages are installed.
{in_tree}exec {python} "$@"
"""

_HEADERS = '''
load("@rules_cc//cc:defs.bzl", "cc_library")

cc_library(
    name = "headers",
    hdrs = glob(["site/{headers}/**/*.h"]),
    includes = ["site/{headers}"],
)
'''

def _write_python(rctx, python):
    """Writes the program that starts the Python of the packages; returns the attributes that name its version."""
    version = rctx.execute([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).stdout.strip()
    bazelw = rctx.path(Label("//:MODULE.bazel")).realpath.dirname.dirname.get_child("bazelw")
    words = {"bazelw": shell.quote(str(bazelw)), "python": shell.quote(str(python))}

    # An archive of rules_hip alone has no bazelw: its programs run in the tree while Bazel does.
    in_tree = _IN_TREE.format(**words) if rctx.path("/usr/share/qola/registry").exists and bazelw.exists else ""
    rctx.file("python", _PYTHON.format(in_tree = in_tree, **words))
    rctx.file("python_version.txt", version + "\n", executable = False)
    return _VERSION.format(version = version)

def _pip_repository_impl(rctx):
    python = host_python(rctx)
    requirements = rctx.path(rctx.attr.requirements)
    rctx.watch(requirements)
    report_step(rctx, "installing the Python packages of {}".format(requirements.basename))

    # The pin of one file needs no other tags than that file's.
    options = ["--python-version=" + rctx.attr.python_version, "--platform=" + rctx.attr.platform] if rctx.attr.platform else []
    result = rctx.execute(
        [
            python,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--no-input",
            "install",
            "--quiet",
            "--require-hashes",
            "--only-binary=:all:",
            "--no-deps",
            "--no-warn-script-location",
            "--target=site",
            "--requirement",
            requirements,
        ] + ([] if rctx.attr.directory else ["--no-compile"]) + options,
        environment = PIP_ENVIRONMENT,
        timeout = 1800,
    )
    if result.return_code != 0:
        fail(finding(
            "ToolchainError: pip could not install qola's Python packages",
            place = rctx.attr.requirements,
            found = result.stderr.strip(),
            expected = "every pinned file, from the index of this machine's pip configuration",
            fix = "{} -m pip config debug; python3 -m pip --version (Debian: apt-get install python3-pip)".format(python),
        ))
    for path in rctx.attr.without:
        if not rctx.delete("site/" + path):
            fail("nothing to leave out: {} has no {}".format(rctx.attr.requirements, path))
    rctx.symlink(requirements, "requirements.txt")
    headers = _HEADERS.format(headers = rctx.attr.headers) if rctx.attr.headers else ""
    packages = _DIRECTORY if rctx.attr.directory else _FILES

    # Those of another platform are read only, and no program imports them.
    packages = packages.format(python = "" if rctx.attr.platform else _write_python(rctx, python))
    rctx.file("BUILD.bazel", _BUILD + packages + headers, executable = False)

pip_repository = repository_rule(
    implementation = _pip_repository_impl,
    attrs = {
        "directory": attr.bool(doc = "Offer them as one directory, with bytecode: for programs whose results stay on this machine."),
        "headers": attr.string(doc = "Directory of C++ headers below what is installed, to offer as //:headers."),
        "platform": attr.string(doc = "Platform tag of the pinned wheels; by default this machine's, and its Python."),
        "python_version": attr.string(doc = "With `platform`: the version of Python of the pinned wheels, such as 3.11."),
        "requirements": attr.label(doc = "requirements.txt in which every line has --hash.", mandatory = True),
        "without": attr.string_list(doc = "Files and directories below what is installed that are not kept."),
    },
    doc = "Installs pinned wheels and offers them as //:packages. An index, mirror or certificate comes from pip's own configuration.",
    environ = ["QOLA_PYTHON"],
)
