"""Links to the files of this checkout, so that linters and tests of pages declare the files that they read."""

# A stray directory beside these, such as a virtual environment, is not part of the checkout.
_DIRECTORIES = [
    ".bcr",
    ".ci",
    "bench",
    "cmake",
    "docs",
    "examples",
    "gfxemu",
    "manifests",
    "qola",
    "qola_base",
    "qola_lab",
    "rules",
    "rules_hip",
    "runtime",
    "tests",
    "third_party",
    "tools",
]

def _is_ours(name):
    """Whether .gitignore has no line for a file or directory."""
    return name not in ["__pycache__", "_ruleset"] and not name.startswith("bazel-") and not name.endswith((".pyc", ".egg-info"))

def _link(root, name):
    """Returns the target of a link to a directory of the checkout, relative to the link; None for another path."""
    path = root.get_child(name)
    top = str(root.realpath) + "/"
    real = str(path.realpath)
    if not path.is_dir or real == top + name or not real.startswith(top):
        return None
    return "../" * name.count("/") + real.removeprefix(top)

def _checkout_impl(rctx):
    root = rctx.workspace_root
    names = []
    links = []
    directories = []
    for path in root.readdir():
        if not path.is_dir:
            names.append(path.basename)
        elif path.basename in _DIRECTORIES:
            directories.append(path.basename)

    # Starlark has no recursion; readdir() makes Bazel watch what each directory lists.
    for depth in range(20):
        if not directories:
            break
        below = []
        for directory in directories:
            for path in root.get_child(directory).readdir():
                name = directory + "/" + path.basename
                if not _is_ours(path.basename):
                    continue
                link = _link(root, name)
                if link:
                    links.append(name + " -> " + link)
                elif path.is_dir:
                    below.append(name)
                else:
                    names.append(name)
        directories = below
    if directories:
        fail("directories nested deeper than {}: {}".format(depth, directories))

    # With an ending: a file BUILD.bazel would make its directory a package, whose files no other package can list.
    for name in names:
        rctx.symlink(root.get_child(name), "files/{}.link".format(name))
    rctx.file("names.txt", "".join([name + "\n" for name in sorted(names + links)]), executable = False)
    rctx.file("BUILD.bazel", """\
exports_files(["names.txt"])

filegroup(
    name = "files",
    srcs = glob(["files/**"]),
    visibility = ["//visibility:public"],
)
""", executable = False)

checkout = repository_rule(
    implementation = _checkout_impl,
    doc = "The files of the checkout: names.txt lists them, and links to directories with their targets; files/<name>.link is a link to each (tests/support/checkout.py).",
)
