"""qola_numeric_test: compiled kernels, run without a GPU, agree with float64.

Three steps, so that a kernel that did not change is not tried again: the library's host code is called, on a runtime
that runs nothing, with problems for each kernel, which gives a case a kernel; each case is tried by an action of its
own; the test reads what came. A case has kernels' code, launches and problems, and nothing else of the library.
"""

load("//rules/private:kernel_transition.bzl", "TRANSITION_ATTRS", "kernel_transition")
load("//rules/private:providers.bzl", "EmulatedModuleInfo", "QolaLibraryInfo")

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
            doc = "Dispatch and kernels' sources, beside plan.json.",
            mandatory = True,
        ),
    },
    doc = "A module's library, with all that running it without a GPU takes.",
)

def _place(ctx, file):
    path = file.short_path
    return '"$files/{}"'.format(path[3:] if path.startswith("../") else ctx.workspace_name + "/" + path)

def _emulation_program_impl(ctx):
    tool = ctx.attr.tool[DefaultInfo]
    runtime = ctx.attr._runtime[DefaultInfo].files.to_list()[0]
    words = [_place(ctx, tool.files_to_run.executable), "--runtime", _place(ctx, runtime)]
    for target in ctx.attr.modules:
        info = target[EmulatedModuleInfo]
        files = (info.library, info.caller, info.plan)
        words += ["--module", info.module] + [_place(ctx, file) for file in files]
    return _program(ctx, words, [runtime], [ctx.attr.tool] + ctx.attr.modules)

emulation_program = rule(
    implementation = _emulation_program_impl,
    attrs = {
        "modules": attr.label_list(mandatory = True, providers = [EmulatedModuleInfo]),
        "tool": attr.label(cfg = "target", executable = True, mandatory = True),
        "_runtime": attr.label(default = "//cc/fake_hip"),
    },
    doc = "The program of `qola verify` or `qola dispatch`, which is told by its arguments what to try.",
    executable = True,
)

def _program(ctx, words, files, targets):
    """A script that calls a tool among its runfiles, with its own arguments behind these words."""
    program = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(
        program,
        "\n".join([
            "#!/bin/sh",
            "# Written by @qola//rules:defs.bzl.",
            "files=$0.runfiles",
            '[ -d "$files" ] || files=${RUNFILES_DIR:-$TEST_SRCDIR}',
            'export RUNFILES_DIR="$files"',
            "exec {} \"$@\"".format(" ".join(words)),
            "",
        ]),
        is_executable = True,
    )
    runfiles = ctx.runfiles(files).merge_all([target[DefaultInfo].default_runfiles for target in targets])
    return [DefaultInfo(executable = program, runfiles = runfiles)]

def _fits(name, pattern):
    """Whether a name fits a pattern with * and ?."""
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
    """Declares the actions of a module; returns what they write."""
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
    words = [_place(ctx, ctx.attr._judge[DefaultInfo].files_to_run.executable), "judge"]
    words.append("--name='{}'".format(ctx.label.name))
    words.append("--fact='{} problems for each kernel, seed {}'".format(ctx.attr.samples, ctx.attr.seed))
    words += ["--kernels='{}'".format(pattern) for pattern in ctx.attr.kernels]

    # Behind all options: the test's own arguments are options, too.
    words += [_place(ctx, file) for file in outcomes]
    return _program(ctx, words, outcomes, [ctx.attr._judge])

qola_numeric_test = rule(
    implementation = _qola_numeric_test_impl,
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
        "_judge": attr.label(cfg = "target", default = "//qola/verify:cached", executable = True),
        "_runtime": attr.label(default = "//cc/fake_hip"),
        "_tool": attr.label(cfg = "exec", default = "//qola/verify:cached", executable = True),
    },
    doc = """Compiled kernels, run on a CPU instruction by instruction, give what float64 gives.

Each kernel instance is tried with problems that the dispatch sends to it; its
results may be off by what rounding can do at worst. The test fails where one
is off by more, where a kernel does what it must not, and where no kernel could
be tried. docs/internals/emulation.md says what cannot be seen. It needs Python
3.11 and the pinned ROCm.

Each kernel is tried by an action of its own, whose inputs are its code, that of
the kernels that run with it, and what the host code launches: with a disk cache
or a remote one, a kernel is tried anew when these change, and not because
another kernel of its library or its batch did.

Example:

    qola_numeric_test(
        name = "attention_numeric_test",
        kernels = ["*_gfx950"],
        modules = ["@qola_te//:libmha_fwd_emulated"],
    )
""",
    test = True,
)
