"""room: a part of qola's Python package, seen from above and never from below."""

load("//rules:python.bzl", "python_library")

# From the ground up. A room imports what stands in earlier layers and nothing of its own layer.
LAYERS = [
    ["ground"],
    ["kernel"],
    ["aiter", "manifest", "reference", "triton"],
    ["fetch"],
    ["checkout", "codegen"],
    ["plan"],
    ["build", "bundle", "emulate", "inspect", "launch", "lazy", "report", "repository"],
    ["verify"],
    ["compat", "fmha", "prebuilt"],
    ["api"],
    ["cli"],
]

# Beside the house: these may look at every room.
_BESIDE = [
    "//:__pkg__",
    "//bench:__subpackages__",
    "//qola:__pkg__",
    "//tests:__subpackages__",
    "//tools:__subpackages__",
]

def room(name, srcs = None, data = [], deps = [], imports = ["../.."]):
    """Declares a room as a library that only the layers above it see.

    Args:
      name: the room, as LAYERS has it.
      srcs: its modules; by default all below its directory.
      data: files beside them.
      deps: the rooms it imports, and packages.
      imports: way to the directory that holds qola/.
    """
    (height,) = [number for number, layer in enumerate(LAYERS) if name in layer]
    python_library(
        name = name,
        srcs = native.glob(["**/*.py"]) if srcs == None else srcs,
        data = data,
        imports = imports,
        visibility = _BESIDE + ["//qola/{}:__pkg__".format(above) for layer in LAYERS[height + 1:] for above in layer],
        deps = deps,
    )
    if native.package_name() != "qola":
        # What repository rules and nested Bazels read of the room.
        native.filegroup(name = "all_files", srcs = native.glob(["**/*"]), visibility = ["//visibility:public"])
