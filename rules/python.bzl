"""python_library and python_tool, for qola itself: the machine's own Python, whatever rules_python registers.

Newer rules_python registers interpreters of its own. With any target of its rules, Bazel would download an
interpreter, even for a bundle in a repository without Python.
"""

load("@rules_python//python:defs.bzl", "PyInfo")

def _way(ctx, path):
    """A directory relative to the package, as it is below runfiles."""
    parts = [ctx.label.workspace_name or ctx.workspace_name] + ctx.label.package.split("/")
    for part in path.split("/"):
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join([part for part in parts if part])

def _collect(ctx, srcs, ways):
    """Returns the PyInfo of files and deps, and their runfiles."""
    deps = [dep[PyInfo] for dep in ctx.attr.deps]
    info = PyInfo(
        imports = depset(ways, transitive = [dep.imports for dep in deps]),
        transitive_sources = depset(srcs, transitive = [dep.transitive_sources for dep in deps]),
    )
    runfiles = ctx.runfiles(srcs + ctx.files.data).merge_all(
        [target[DefaultInfo].default_runfiles for target in ctx.attr.deps + ctx.attr.data],
    )
    return info, runfiles

def _python_library_impl(ctx):
    info, runfiles = _collect(ctx, ctx.files.srcs, [_way(ctx, path) for path in ctx.attr.imports])
    return [DefaultInfo(files = depset(ctx.files.srcs), runfiles = runfiles), info]

_ATTRS = {
    "data": attr.label_list(allow_files = True, doc = "Files beside the modules."),
    "deps": attr.label_list(doc = "Libraries.", providers = [PyInfo]),
    "imports": attr.string_list(doc = "Directories for sys.path, relative to the package."),
    "srcs": attr.label_list(allow_files = [".py"], doc = "Modules."),
}

python_library = rule(
    implementation = _python_library_impl,
    attrs = _ATTRS,
    doc = "A py_library without a toolchain; py_binary and py_test take it for one.",
    provides = [PyInfo],
)

# Runfiles are beside the program, or those of the test whose part it is.
_PROGRAM = """\
#!/bin/sh
# Written by @qola//rules:python.bzl.
files=$0.runfiles
[ -d "$files" ] || files=${{RUNFILES_DIR:-$TEST_SRCDIR}}
exec python3 -I -B -c '
import os, runpy, sys
root = os.path.abspath(sys.argv.pop(1))
sys.path[:0] = [os.path.join(root, way) for way in {ways}]
runpy.run_module("{module}", run_name="__main__", alter_sys=True)
' "$files" "$@"
"""

def _python_tool_impl(ctx):
    info, runfiles = _collect(ctx, ctx.files.srcs, [_way(ctx, path) for path in ctx.attr.imports])
    program = ctx.actions.declare_file(ctx.label.name)
    text = _PROGRAM.format(module = ctx.attr.module, ways = json.encode(info.imports.to_list()))
    ctx.actions.write(program, text, is_executable = True)
    return [DefaultInfo(executable = program, files = depset([program]), runfiles = runfiles)]

python_tool = rule(
    implementation = _python_tool_impl,
    attrs = _ATTRS | {
        "module": attr.string(doc = "What runs: a module, or a package with __main__.py.", mandatory = True),
    },
    doc = "A program in Python that rules run.",
    executable = True,
)
