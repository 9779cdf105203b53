"""qola_package: a package of the Python code, visible only to the layers and parts above it."""

load("@rules_hip//lib:python.bzl", "python_library", "python_tool")

# The parts, each with a README.md, and the parts that its code may import. runtime/ has files that users link or
# import: each stands alone.
PARTS = {
    "gfxemu": ["qola_base"],
    "qola": ["qola_base"],
    "qola_base": [],
    "qola_lab": [
        "gfxemu",
        "qola",
        "qola_base",
    ],
    "runtime": [],
}

# The packages of each part, from bottom to top. A package imports packages of lower layers only, never of its own layer.
LAYERS = {
    "gfxemu": [["gfxemu"]],
    "qola": [
        ["common"],
        ["kernel"],
        ["aiter", "manifest", "triton"],
        ["fetch"],
        ["checkout", "codegen"],
        ["plan"],
        ["build", "bundle", "lazy", "query", "report", "repository", "split"],
        ["prebuilt"],
        ["api"],
        ["cli"],
    ],
    "qola_base": [
        ["qola_base"],
        ["code_object"],
    ],
    "qola_lab": [
        ["reference"],
        ["launch", "problems"],
        ["verify"],
        ["fmha", "trees"],
        ["models"],
        ["cli"],
    ],
}

# Most lines of Python in each part, without its tests: what one person has to hold in mind. A part that outgrows its
# budget loses something before it gains.
LINES = {
    "gfxemu": 6200,
    "qola": 34600,
    "qola_base": 2100,
    "qola_lab": 10700,
    "runtime": 2300,
}

# Outside the layers: these may import every package.
_OUTSIDE = [
    "//:__pkg__",
    "//gfxemu/tests:__subpackages__",
    "//qola:__pkg__",
    "//qola_lab:__pkg__",
    "//qola_lab/tests:__subpackages__",
    "//runtime/tests:__subpackages__",
    "//tests:__subpackages__",
    "//tools:__subpackages__",
]

def _above(part, name):
    """The packages that may import a package."""
    layers = LAYERS[part]
    (height,) = [number for number, layer in enumerate(layers) if name in layer]
    own = ["//{}/{}:__pkg__".format(part, above) for layer in layers[height + 1:] for above in layer]
    return own + ["//{}:__subpackages__".format(other) for other, imported in PARTS.items() if part in imported]

def qola_package(name, srcs = None, data = [], deps = [], tools = {}):
    """Declares a package as a library that only higher layers and parts see.

    Args:
      name: name of the package in LAYERS.
      srcs: its modules; by default all Python files below its directory.
      data: its data files.
      deps: the packages it imports, of these parts and of PyPI.
      tools: its programs that rules run: their modules by target name.
    """
    path = native.package_name().split("/")
    python_library(
        name = name,
        srcs = native.glob(["**/*.py"]) if srcs == None else srcs,
        data = data,
        imports = ["/".join([".." for _ in path])],
        visibility = _OUTSIDE + _above(path[0], name),
        deps = deps,
    )
    for tool, module in tools.items():
        python_tool(name = tool, module = module, visibility = ["//visibility:public"], deps = [":" + name])
    if native.package_name() != "qola":
        # The files that repository rules and nested Bazels read.
        native.filegroup(name = "all_files", srcs = native.glob(["**/*"]), visibility = ["//visibility:public"])
