"""kernel_numeric_test: compiled kernels, run without a GPU, agree with float64."""

load("//rules/private:kernel_transition.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("//rules/private:providers.bzl", "EmulatedModuleInfo", "QolaLibraryInfo")

def _emulated_module_impl(ctx):
    info = ctx.attr.library[0][QolaLibraryInfo]
    (caller,) = ctx.files.caller
    own = ctx.runfiles([info.library, info.plan, caller] + ctx.files.sources)
    runfiles = own.merge(ctx.attr.library[0][DefaultInfo].default_runfiles)
    return [
        DefaultInfo(files = depset([info.plan]), runfiles = runfiles),
        EmulatedModuleInfo(caller = caller, library = info.library, module = ctx.attr.module, plan = info.plan),
    ]

emulated_module = rule(
    implementation = _emulated_module_impl,
    attrs = TRANSITION_ATTRS | {
        "caller": attr.label(mandatory = True),
        "library": attr.label(cfg = kernel_transition, mandatory = True, providers = [QolaLibraryInfo]),
        "module": attr.string(mandatory = True),
        "sources": attr.label(
            allow_files = True,
            doc = "Dispatch and kernels' sources, beside plan.json.",
            mandatory = True,
        ),
    },
    doc = "A module's library, with all that running it without a GPU takes.",
)

def _place(ctx, file):
    path = file.short_path
    return '"$files/{}"'.format(path[3:] if path.startswith("../") else ctx.workspace_name + "/" + path)

def _kernel_numeric_test_impl(ctx):
    tool = ctx.attr._tool[DefaultInfo]
    runtime = ctx.attr._runtime[DefaultInfo].files.to_list()[0]
    words = [_place(ctx, tool.files_to_run.executable), "--runtime", _place(ctx, runtime)]
    for target in ctx.attr.modules:
        info = target[EmulatedModuleInfo]
        files = (info.library, info.caller, info.plan)
        words += ["--module", info.module] + [_place(ctx, file) for file in files]
    for option, values in {"arch": ctx.attr.archs, "kernels": ctx.attr.kernels}.items():
        for value in values:
            words.append("--{}='{}'".format(option, value))
    words += ["--samples={}".format(ctx.attr.samples), "--seed={}".format(ctx.attr.seed)]
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(
        program,
        "\n".join([
            "#!/bin/sh",
            "# Written by @qola//rules:defs.bzl, kernel_numeric_test.",
            "files=$0.runfiles",
            '[ -d "$files" ] || files=${RUNFILES_DIR:-$TEST_SRCDIR}',
            'export RUNFILES_DIR="$files"',
            "exec {} \"$@\"".format(" ".join(words)),
            "",
        ]),
        is_executable = True,
    )
    runfiles = ctx.runfiles([runtime]).merge_all(
        [target[DefaultInfo].default_runfiles for target in [ctx.attr._tool] + ctx.attr.modules],
    )
    return [DefaultInfo(executable = program, runfiles = runfiles)]

kernel_numeric_test = rule(
    implementation = _kernel_numeric_test_impl,
    attrs = {
        "archs": attr.string_list(doc = "Archs to emulate, gfx942 or gfx950; empty: those of the manifest."),
        "kernels": attr.string_list(doc = "Names of the kernels to try, with `*` and `?`; empty: all of the modules."),
        "modules": attr.label_list(
            doc = "Modules in a manifest's repository: @qola_<manifest>//:<module>_emulated.",
            mandatory = True,
            providers = [EmulatedModuleInfo],
        ),
        "samples": attr.int(default = 3, doc = "How many problems each kernel is tried with."),
        "seed": attr.int(default = 0, doc = "Of the problems, which are the same for the same seed."),
        "_runtime": attr.label(default = "//cc/fake_hip"),
        "_tool": attr.label(cfg = "target", default = "//qola/verify:tool", executable = True),
    },
    doc = """Compiled kernels, run on a CPU instruction by instruction, give what float64 gives.

Each kernel instance is tried with problems that the dispatch sends to it; its
results may be off by what rounding can do at worst. The test fails where one
is off by more, where a kernel does what it must not, and where no kernel could
be tried. docs/internals/emulation.md says what cannot be seen. It needs Python
3.11 and the pinned ROCm.

Example:

    kernel_numeric_test(
        name = "attention_numeric_test",
        kernels = ["*_gfx950"],
        modules = ["@qola_te//:libmha_fwd_emulated"],
    )
""",
    test = True,
)
