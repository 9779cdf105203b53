"""The features of the ROCm C++ toolchain."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load(
    "@rules_cc//cc:cc_toolchain_config_lib.bzl",
    "action_config",
    "env_entry",
    "env_set",
    "feature",
    "flag_group",
    "flag_set",
    "tool",
    "tool_path",
)
load("@rules_cc//cc:defs.bzl", "CcToolchainConfigInfo", "cc_common")
load(":flags.bzl", "AITER_FLAGS", "ASSEMBLER_FLAGS", "BASE_FLAGS", "COMPILE_LATER")

_COMPILE = [ACTION_NAMES.cpp_compile, ACTION_NAMES.c_compile, ACTION_NAMES.cpp_header_parsing]
_ASSEMBLE = [ACTION_NAMES.assemble, ACTION_NAMES.preprocess_assemble]
_LINK = [
    ACTION_NAMES.cpp_link_executable,
    ACTION_NAMES.cpp_link_dynamic_library,
    ACTION_NAMES.cpp_link_nodeps_dynamic_library,
]

def _flags(actions, flags):
    return flag_set(actions = actions, flag_groups = [flag_group(flags = flags)] if flags else [])

def _each(flag, variable):
    return flag_group(flags = [flag, "%{{{}}}".format(variable)], iterate_over = variable)

# Clang looks which distribution it runs on and links as that does; these are
# what it passes on Debian.
_AS_EVERYWHERE = ["-Wl,--hash-style=gnu", "-Wl,-z,lazy"]

def _identity(ctx):
    """Environment and define that name a compiler which is not among the inputs.

    Read by nobody: they put the compiler and its headers into the key of every
    action, so that after an upgrade no cache answers with what the old ones
    made. The pinned SDK's files are inputs and need none.
    """
    if ctx.attr.sdk:
        return struct(define = [], env = [])
    identity = ctx.attr.identity or "none"
    return struct(
        define = ["-DQOLA_ROCM_IDENTITY=" + identity],
        env = [env_entry(key = "QOLA_ROCM_IDENTITY", value = identity)],
    )

def _places(ctx):
    """Flags that say where the SDK's parts are; relative, for actions run in the execution root."""
    if not ctx.attr.sdk:
        return struct(compile = [], link = ["-L" + ctx.attr.library_dir] if ctx.attr.library_dir else [])
    root = ctx.label.workspace_root + "/sdk"
    common = ["-no-canonical-prefixes", "--sysroot={}/sysroot".format(root)]
    return struct(
        compile = common + [
            # C++ without HIP has no use for it.
            "--start-no-unused-arguments",
            "--rocm-path={}/rocm".format(root),
            "--end-no-unused-arguments",
            "-resource-dir={}/resource".format(root),
        ],
        link = common + ["-L{}/rocm/lib".format(root)],
    )

def _features(ctx):
    identity = _identity(ctx)
    places = _places(ctx)
    return [
        # Bazel's own feature of this name leaves system includes out.
        feature(
            name = "include_paths",
            enabled = True,
            flag_sets = [flag_set(actions = _COMPILE, flag_groups = [
                _each("-iquote", "quote_include_paths"),
                _each("-I", "include_paths"),
                _each("-isystem", "system_include_paths"),
            ])],
        ),
        # Bazel would otherwise add flags of its own choice (-g0, -O2,
        # -DNDEBUG, frame pointers) by compilation mode.
        feature(name = "default_compile_flags"),
        feature(name = "opt"),
        feature(name = "dbg"),
        feature(name = "supports_pic", enabled = True),
        # One archive action less for each kernel instance: lld takes the
        # objects between --start-lib and --end-lib.
        feature(name = "supports_start_end_lib", enabled = True),
        feature(name = "supports_dynamic_linker", enabled = True),
        feature(
            name = "rocm",
            enabled = True,
            env_sets = [env_set(
                actions = _ASSEMBLE + _COMPILE + _LINK,
                # hipcc would look for a device on each call.
                env_entries = [env_entry(key = "HIP_PLATFORM", value = "amd")] + (
                    [env_entry(key = "ROCM_PATH", value = ctx.attr.rocm_path)] if ctx.attr.rocm_path else []
                ) + identity.env,
            )],
            flag_sets = [
                _flags(_ASSEMBLE, ASSEMBLER_FLAGS + identity.define),
                _flags(_COMPILE, BASE_FLAGS + places.compile + identity.define),
                _flags([COMPILE_LATER], BASE_FLAGS),
                _flags(_LINK, ["-fuse-ld=lld", "-Wl,--gc-sections", "-Wl,--build-id=sha1"] + _AS_EVERYWHERE + places.link),
            ],
        ),
        # What AITER compiles its sources with; asked for by the targets of a
        # generated repository, never by a consumer's own HIP code.
        feature(
            name = "aiter",
            flag_sets = [_flags(_COMPILE + [COMPILE_LATER], AITER_FLAGS + ctx.attr.optional_flags)],
        ),
    ]

def _action_configs(ctx):
    return [
        # Bazel knows no action but its own without one.
        action_config(
            action_name = COMPILE_LATER,
            enabled = True,
            tools = [tool(path = ctx.attr.tools["gcc"])],
        ),
    ]

def _rocm_toolchain_config_impl(ctx):
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        abi_libc_version = "glibc",
        abi_version = "gnu",
        action_configs = _action_configs(ctx),
        compiler = "clang" if ctx.attr.sdk else "hipcc",
        cxx_builtin_include_directories = ["{}/sdk/{}".format(ctx.label.workspace_root, place) for place in [
            "resource",
            "rocm",
            "sysroot",
        ]] if ctx.attr.sdk else ctx.attr.include_dirs,
        features = _features(ctx),
        host_system_name = "local",
        target_cpu = "k8",
        target_libc = "glibc",
        target_system_name = "x86_64-linux-gnu",
        tool_paths = [
            tool_path(name = name, path = path)
            for name, path in sorted((ctx.attr.tools | {"cpp": ctx.attr.tools["gcc"], "gcov": "/bin/false"}).items())
        ],
        toolchain_identifier = "rocm",
    )

rocm_toolchain_config = rule(
    implementation = _rocm_toolchain_config_impl,
    attrs = {
        "identity": attr.string(doc = "Digest of compiler, linker, device libraries and headers, where these are not inputs of the actions."),
        "include_dirs": attr.string_list(doc = "The compiler's own include directories, absolute."),
        "library_dir": attr.string(doc = "Directory of libamdhip64.so."),
        "optional_flags": attr.string_list(doc = "The flags of OPTIONAL_FLAGS that this compiler accepts, flat."),
        "sdk": attr.bool(doc = "Whether the calling repository is the pinned SDK, as lay_out_sdk.py makes it."),
        "rocm_path": attr.string(doc = "Prefix of the ROCm installation; empty for a distribution's layout, whose compiler finds its parts itself."),
        "tools": attr.string_dict(doc = "Path of each tool: gcc (hipcc or clang++), ld, ar, nm, objcopy, objdump, strip."),
    },
    doc = "Configuration of the ROCm C++ toolchain; see rocm_toolchain.",
    provides = [CcToolchainConfigInfo],
)
