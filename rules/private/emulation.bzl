"""Runs libraries without a GPU: launch tests, numeric tests, and the programs of `qola verify` and `qola dispatch`."""

load("@rules_cc//cc:defs.bzl", "cc_binary")
load("@rules_hip//lib:program_script.bzl", "place_of", "program_script")
load("@rules_hip//lib:transitions.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("@rules_hip//rocm:hip_soname.bzl", "RUNTIME_LINK_FLAGS", "RUNTIME_LINK_INPUTS")
load("@rules_hip//rocm:rocm_files.bzl", "rocm_files")
load(":providers.bzl", "EmulatedModuleInfo", "QolaLibraryInfo")

_ATTRS = TRANSITION_ATTRS | {
    "library": attr.label(cfg = kernel_transition, mandatory = True, providers = [QolaLibraryInfo]),
    "module": attr.string(mandatory = True),
}

def _launch_source_impl(ctx):
    info = ctx.attr.library[0][QolaLibraryInfo]
    args = ctx.actions.args()
    args.add("--plan", info.plan)
    args.add("--module", ctx.attr.module)
    args.add("--output", ctx.outputs.out)
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._tool,
        inputs = [info.plan],
        mnemonic = "QolaLaunchSource",
        outputs = [ctx.outputs.out],
        progress_message = "Writing the caller of %{label}",
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )

_launch_source = rule(
    implementation = _launch_source_impl,
    attrs = _ATTRS | {
        "out": attr.output(mandatory = True),
        "_tool": attr.label(cfg = "exec", default = "//qola_lab/launch:tool", executable = True),
    },
    doc = "Writes the C++ of a library that calls a module's library.",
)

def _launch_test_impl(ctx):
    info = ctx.attr.library[0][QolaLibraryInfo]
    tool = ctx.attr._tool[DefaultInfo]
    runtime = ctx.attr._runtime[DefaultInfo].files.to_list()[0]
    files = {"library": info.library, "plan": info.plan, "runtime": runtime}
    words = [place_of(ctx, tool.files_to_run.executable)]
    for option, file in files.items():
        words += ["--" + option, place_of(ctx, file)]
    words += ["--module", ctx.attr.module, "--archs"] + info.archs
    return program_script(ctx, words, files.values(), [ctx.attr._tool, ctx.attr.library[0]])

_launch_test = rule(
    implementation = _launch_test_impl,
    attrs = _ATTRS | {
        "_runtime": attr.label(default = "@rules_hip//gfxemu/fake_hip"),
        "_tool": attr.label(cfg = "target", default = "//qola_lab/verify:launches", executable = True),
    },
    doc = "Calls the library on a device of each arch; fails if an entry point launches nothing.",
    test = True,
)

# Only host code. C++20, because the headers check for members of a tree's arguments.
_HOST_COPTS = ["--offload-host-only", "-std=c++20"]

def library_caller(name, library, module):
    """Declares a library that calls another one's entry points with values by name, for gfxemu.

    Args:
      name: target name; the file is <name>.so.
      library: label of the module's qola_library.
      module: the module, as plan.json names it.
    """
    common = dict(tags = ["manual"], visibility = ["//visibility:public"])
    _launch_source(
        name = name + ".source",
        out = name + ".cpp",
        library = library,
        module = module,
        **common
    )
    cc_binary(
        name = name + ".so",
        srcs = [name + ".cpp"],
        copts = _HOST_COPTS + ["-fPIC"],
        additional_linker_inputs = RUNTIME_LINK_INPUTS,
        linkopts = RUNTIME_LINK_FLAGS,
        linkshared = True,
        target_compatible_with = [Label("@rules_hip//rocm:rocm")],
        deps = [library, Label("//qola_lab/caller")],
        **common
    )
    rocm_files(
        name = name,
        srcs = [name + ".so"],
        **common
    )

def launch_test(name, library, module):
    """Declares the launch test of a module's library.

    Args:
      name: target name.
      library: label of the module's qola_library.
      module: the module, as plan.json names it.
    """
    _launch_test(
        name = name,
        size = "medium",
        library = library,
        module = module,
        tags = ["manual"],
        visibility = ["//visibility:public"],
    )

def _emulated_module_impl(ctx):
    info = ctx.attr.library[0][QolaLibraryInfo]
    (caller,) = ctx.files.caller
    own = ctx.runfiles([info.library, info.plan, caller] + ctx.files.sources)
    runfiles = own.merge(ctx.attr.library[0][DefaultInfo].default_runfiles)
    return [
        DefaultInfo(files = depset([info.plan]), runfiles = runfiles),
        EmulatedModuleInfo(
            caller = caller,
            files = runfiles.files,
            kernels = [
                file.basename[:-len(".cpp")]
                for file in ctx.files.sources
                if file.dirname.endswith(ctx.attr.module + "/kernels")
            ],
            library = info.library,
            module = ctx.attr.module,
            plan = info.plan,
        ),
    ]

emulated_module = rule(
    implementation = _emulated_module_impl,
    attrs = TRANSITION_ATTRS | {
        "caller": attr.label(mandatory = True),
        "library": attr.label(cfg = kernel_transition, mandatory = True, providers = [QolaLibraryInfo]),
        "module": attr.string(mandatory = True),
        "sources": attr.label(
            allow_files = True,
            doc = "Sources of dispatch and kernels, next to plan.json.",
            mandatory = True,
        ),
    },
    doc = "A module's library, with all files to run it without a GPU.",
)

def _emulation_program_impl(ctx):
    tool = ctx.attr.tool[DefaultInfo]
    runtime = ctx.attr._runtime[DefaultInfo].files.to_list()[0]
    words = [place_of(ctx, tool.files_to_run.executable), "--runtime", place_of(ctx, runtime)]
    for target in ctx.attr.modules:
        info = target[EmulatedModuleInfo]
        files = (info.library, info.caller, info.plan)
        words += ["--module", info.module] + [place_of(ctx, file) for file in files]
    return program_script(ctx, words, [runtime], [ctx.attr.tool] + ctx.attr.modules)

emulation_program = rule(
    implementation = _emulation_program_impl,
    attrs = {
        "modules": attr.label_list(mandatory = True, providers = [EmulatedModuleInfo]),
        "tool": attr.label(cfg = "target", executable = True, mandatory = True),
        "_runtime": attr.label(default = "@rules_hip//gfxemu/fake_hip"),
    },
    doc = "The program of `qola verify` or `qola dispatch`; it takes their arguments.",
    executable = True,
)

def _fits(name, pattern):
    """Returns whether a name matches a pattern with * and ?."""
    at, place, star, mark = 0, 0, -1, 0
    for _ in range((len(name) + 1) * (len(pattern) + 1)):
        if at == len(name):
            break
        if place < len(pattern) and pattern[place] == "*":
            star, mark = place, at
            place += 1
        elif place < len(pattern) and pattern[place] in ("?", name[at]):
            at, place = at + 1, place + 1
        elif star >= 0:
            mark += 1
            at, place = mark, star + 1
        else:
            return False
    return not pattern[place:].strip("*")

def _outcomes(ctx, info, place):
    """Declares the actions of a module, and returns their outcomes."""
    directory = "{}.cases/{}/".format(ctx.label.name, place)
    runtime = ctx.attr._runtime[DefaultInfo].files.to_list()[0]
    wanted = [k for k in info.kernels if not ctx.attr.kernels or any([_fits(k, p) for p in ctx.attr.kernels])]
    cases = {name: ctx.actions.declare_file(directory + name + ".case") for name in wanted}
    others = ctx.actions.declare_file(directory + "others.case")
    args = ctx.actions.args()
    args.use_param_file("@%s", use_always = True)
    args.set_param_file_format("multiline")
    args.add("record")
    args.add("--runtime", runtime)
    args.add("--module")
    args.add_all([info.module, info.library, info.caller, info.plan])
    args.add_all(ctx.attr.archs, before_each = "--arch")
    args.add_all(ctx.attr.kernels, format_each = "--kernels=%s")
    args.add(ctx.attr.samples, format = "--samples=%s")
    args.add(ctx.attr.seed, format = "--seed=%s")
    for name, file in cases.items():
        args.add("--case")
        args.add_all([name, file])
    args.add("--others", others)
    files = cases.values() + [others]
    ctx.actions.run(
        arguments = [args],
        executable = ctx.executable._tool,
        inputs = depset([runtime], transitive = [info.files]),
        mnemonic = "QolaRecordLaunches",
        outputs = files,
        progress_message = "Calling {} of %{{label}}".format(info.module),
        # The tool finds Python on it; with strict_action_env it is Bazel's own.
        use_default_shell_env = True,
    )
    outcomes = []
    for file in files:
        outcome = ctx.actions.declare_file(directory + file.basename[:-len("case")] + "json")
        outcomes.append(outcome)
        ctx.actions.run(
            arguments = ["replay", "--cases", file.path, "--output", outcome.path],
            executable = ctx.executable._tool,
            inputs = [file],
            mnemonic = "QolaEmulate",
            outputs = [outcome],
            progress_message = "Emulating %{input}",
            use_default_shell_env = True,
        )
    return outcomes

def _qola_numeric_test_impl(ctx):
    outcomes = []
    for place, target in enumerate(ctx.attr.modules):
        outcomes += _outcomes(ctx, target[EmulatedModuleInfo], place)
    words = [place_of(ctx, ctx.attr._judge[DefaultInfo].files_to_run.executable), "judge"]
    words.append("--name='{}'".format(ctx.label.name))
    words.append("--fact='{} problems for each kernel, seed {}'".format(ctx.attr.samples, ctx.attr.seed))
    words += ["--kernels='{}'".format(pattern) for pattern in ctx.attr.kernels]

    # After the options, because the test's own arguments are options.
    words += [place_of(ctx, file) for file in outcomes]
    return program_script(ctx, words, outcomes, [ctx.attr._judge])

qola_numeric_test = rule(
    implementation = _qola_numeric_test_impl,
    attrs = {
        "archs": attr.string_list(doc = "Archs to emulate, such as gfx942; empty: the manifest's archs."),
        "kernels": attr.string_list(doc = "Patterns with `*` and `?` for the names of kernels to run; empty: all of the modules."),
        "modules": attr.label_list(
            doc = "Modules to run: `@qola_<manifest>//:<module>_emulated`.",
            mandatory = True,
            providers = [EmulatedModuleInfo],
        ),
        "samples": attr.int(default = 3, doc = "Number of problems for each kernel."),
        "seed": attr.int(default = 0, doc = "Seed of the problems."),
        "_judge": attr.label(cfg = "target", default = "//qola_lab/verify:cached", executable = True),
        "_runtime": attr.label(default = "@rules_hip//gfxemu/fake_hip"),
        "_tool": attr.label(cfg = "exec", default = "//qola_lab/verify:cached", executable = True),
    },
    doc = """Runs compiled kernels on the CPU, instruction by instruction, and compares their results with float64.

The test runs each kernel instance with problems that the dispatch sends to it.
It fails if a result differs by more than the worst case of rounding, if a kernel
makes an invalid memory access or breaks another rule of the hardware, and if no
kernel could run. Limits: docs/internals/emulation.md. It needs Python 3.11 and
the pinned ROCm.

An action per kernel has only these inputs: the code of the kernel, the code of
its helper kernels, and the launches of the host code. With a disk cache or a
remote cache, a change of another kernel of the library or the batch does not run
the kernel again.

Example:

    qola_numeric_test(
        name = "attention_numeric_test",
        kernels = ["*_gfx950"],
        modules = ["@qola_te//:libmha_fwd_emulated"],
    )
""",
    test = True,
)
