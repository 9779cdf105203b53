"""python_library and python_tool: the Python of repository rules, whatever rules_python registers.

Newer rules_python registers interpreters of its own. With any target of its rules, Bazel would download an
interpreter, even for a bundle in a repository without Python.
"""

load("@rules_python//python:defs.bzl", "PyInfo")

_PackagesInfo = provider(
    doc = "Packages from an index.",
    fields = {
        "file": "path below runfiles of a file of their repository, next to which `python` starts their Python",
        "version": "version of the Python for which they are installed, such as 3.14",
    },
)

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
    """Returns the PyInfo of files and deps, their runfiles, and a list with the _PackagesInfo of a dependency."""
    deps = [dep[PyInfo] for dep in ctx.attr.deps]
    info = PyInfo(
        imports = depset(ways, transitive = [dep.imports for dep in deps]),
        transitive_sources = depset(srcs, transitive = [dep.transitive_sources for dep in deps]),
    )
    runfiles = ctx.runfiles(srcs + ctx.files.data).merge_all(
        [target[DefaultInfo].default_runfiles for target in ctx.attr.deps + ctx.attr.data],
    )
    packages = [dep[_PackagesInfo] for dep in ctx.attr.deps if _PackagesInfo in dep]
    return info, runfiles, packages[:1]

def _python_library_impl(ctx):
    info, runfiles, packages = _collect(ctx, ctx.files.srcs, [_way(ctx, path) for path in ctx.attr.imports])
    if ctx.attr.python_version:
        (file,) = ctx.files.python_version_file
        packages = [_PackagesInfo(file = _way(ctx, file.basename), version = ctx.attr.python_version)]
        runfiles = runfiles.merge(ctx.runfiles([file]))
    return [DefaultInfo(files = depset(ctx.files.srcs), runfiles = runfiles), info] + packages

_ATTRS = {
    "data": attr.label_list(allow_files = True, doc = "Files beside the modules."),
    "deps": attr.label_list(doc = "Libraries.", providers = [PyInfo]),
    "imports": attr.string_list(doc = "Directories for sys.path, relative to the package."),
    "srcs": attr.label_list(allow_files = [".py"], doc = "Modules."),
}

python_library = rule(
    implementation = _python_library_impl,
    attrs = _ATTRS | {
        "python_version": attr.string(doc = "Of packages from an index: version of the Python that they are for, such as 3.14."),
        "python_version_file": attr.label(allow_single_file = True, doc = "File of their repository's root, next to which `python` starts this Python."),
    },
    doc = "A py_library without a toolchain; py_binary and py_test take it for one.",
    provides = [PyInfo],
)

# Runfiles are beside the program, or those of the test whose part it is.
_PROGRAM = """\
#!/bin/sh
# Written by @rules_hip//lib:python.bzl.
files=$0.runfiles
[ -d "$files" ] || files=${{RUNFILES_DIR:-$TEST_SRCDIR}}
python=python3
{select}exec "$python" -I -B -c '
import os, runpy, sys
root = os.path.abspath(sys.argv.pop(1))
os.environ["RUNFILES_DIR"] = root
sys.path[:0] = [os.path.join(root, way) for way in {ways}]
runpy.run_module("{module}", run_name="__main__", alter_sys=True)
' "$files" "$@"
"""

# The script has a version, and no path, because it is an input of actions that machines share. The file `python` is
# not an input of the action. The script finds it through a link among the runfiles, and uses it only where python3 has
# another version. A remote worker does not have it: most tools run with any Python there.
_SELECT = """\
case $(readlink -f "$(command -v python3)") in
*/python{version}) ;;
*)
  if ! python3 -I -S -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{version}")' 2>/dev/null; then
    named=$(dirname "$(readlink -f "$files/{file}")")/python
    [ ! -x "$named" ] || python=$named
  fi
  ;;
esac
"""

def _python_tool_impl(ctx):
    info, runfiles, packages = _collect(ctx, ctx.files.srcs, [_way(ctx, path) for path in ctx.attr.imports])
    program = ctx.actions.declare_file(ctx.label.name)
    text = _PROGRAM.format(
        module = ctx.attr.module,
        select = "".join([_SELECT.format(file = found.file, version = found.version) for found in packages]),
        ways = json.encode(info.imports.to_list()),
    )
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
