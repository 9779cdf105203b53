"""qola_package: a package of qola's Python code, visible only to the layers above it."""

load("//rules:python.bzl", "python_library", "python_tool")

# From bottom to top. A package imports packages of lower layers only, never of its own layer.
LAYERS = [
    ["ground"],
    ["kernel"],
    ["aiter", "code_object", "manifest", "reference", "triton"],
    ["attention", "fetch"],
    ["checkout", "codegen"],
    ["plan"],
    ["build", "bundle", "emulate", "launch", "lazy", "query", "report", "repository", "split"],
    ["verify"],
    ["compat", "fmha", "prebuilt"],
    ["api", "health", "models"],
    ["cli"],
]

# Outside the layers: these may import every package.
_OUTSIDE = [
    "//:__pkg__",
    "//bench:__subpackages__",
    "//qola:__pkg__",
    "//tests:__subpackages__",
    "//tools:__subpackages__",
]

def qola_package(name, srcs = None, data = [], deps = [], imports = ["../.."], tools = {}):
    """Declares a package as a library that only higher layers see.

    Args:
      name: name of the package in LAYERS.
      srcs: its modules; by default all Python files below its directory.
      data: its data files.
      deps: the packages it imports, of qola and of PyPI.
      imports: path to the directory that contains qola/.
      tools: its programs that rules run: their modules by target name.
    """
    (height,) = [number for number, layer in enumerate(LAYERS) if name in layer]
    python_library(
        name = name,
        srcs = native.glob(["**/*.py"]) if srcs == None else srcs,
        data = data,
        imports = imports,
        visibility = _OUTSIDE + ["//qola/{}:__pkg__".format(above) for layer in LAYERS[height + 1:] for above in layer],
        deps = deps,
    )
    for tool, module in tools.items():
        python_tool(name = tool, module = module, visibility = ["//visibility:public"], deps = [":" + name])
    if native.package_name() != "qola":
        # The files that repository rules and nested Bazels read.
        native.filegroup(name = "all_files", srcs = native.glob(["**/*"]), visibility = ["//visibility:public"])
