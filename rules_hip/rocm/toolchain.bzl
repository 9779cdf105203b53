"""The ROCm C++ toolchain: rocm_cc_toolchain compiles HIP, rocm_toolchain declares it, rocm_sdk makes the pinned one."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES")
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
load("@rules_cc//cc:defs.bzl", "CcToolchainConfigInfo", "cc_common", "cc_library", "cc_toolchain")
load(":compiler.bzl", "PINNED_COMPILER")
load(":flags.bzl", "AITER_FLAGS", "ASSEMBLER_FLAGS", "BASE_FLAGS", "BUNDLE_FORMAT", "COMPILE_LATER", "llvm_tools")

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

# Clang detects the distribution and links accordingly; these are its flags on
# Debian.
_AS_EVERYWHERE = ["-Wl,--hash-style=gnu", "-Wl,-z,lazy"]

def _identity(ctx):
    """Returns environment and define that identify a compiler outside of the inputs.

    Nothing reads them: they are part of the key of every action, so that after
    an upgrade no cache returns results of the old compiler or headers. The files
    of the pinned SDK are inputs and need neither.
    """
    if ctx.attr.sdk:
        return struct(define = [], env = [])
    identity = ctx.attr.identity or "none"
    return struct(
        define = ["-DQOLA_ROCM_IDENTITY=" + identity],
        env = [env_entry(key = "QOLA_ROCM_IDENTITY", value = identity)],
    )

def _places(ctx):
    """Returns flags with the paths of the SDK's parts, relative to the execution root."""
    if not ctx.attr.sdk:
        return struct(compile = [], link = ["-L" + ctx.attr.library_dir] if ctx.attr.library_dir else [])
    root = ctx.label.workspace_root + "/sdk"
    common = ["-no-canonical-prefixes", "--sysroot={}/sysroot".format(root)]
    return struct(
        compile = common + [
            # C++ without HIP does not use it.
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
                env_entries = [
                    env_entry(key = key, value = value)
                    for key, value in ({"HIP_PLATFORM": "amd"} | BUNDLE_FORMAT).items()
                ] + (
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
        # AITER's own flags. Targets of a generated repository enable them, a
        # consumer's own HIP code does not.
        feature(
            name = "aiter",
            flag_sets = [_flags(_COMPILE + [COMPILE_LATER], AITER_FLAGS + ctx.attr.optional_flags)],
        ),
    ]

def _action_configs(ctx):
    return [
        # Bazel knows only its own actions without an action_config.
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
        compiler = PINNED_COMPILER if ctx.attr.sdk else "hipcc",
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

_rocm_toolchain_config = rule(
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

def rocm_cc_toolchain(name, tools, compiler_files = None, linker_files = None, tool_files = None, **kwargs):
    """Declares a config and a cc_toolchain.

    Args:
      name: name of the cc_toolchain.
      tools: dict from Bazel's tool name (gcc, ld, ar, ...) to its path:
        absolute, or relative to the calling package.
      compiler_files: label of all inputs of a compile; None for a compiler
        outside of Bazel's inputs.
      linker_files: label of all inputs of a link.
      tool_files: label of all inputs of ar, nm, objcopy and strip.
      **kwargs: further attributes of _rocm_toolchain_config.
    """
    scripts = name + "_scripts"
    native.filegroup(name = scripts, srcs = native.glob(["*.sh"], allow_empty = True))
    _rocm_toolchain_config(name = name + "_config", tools = tools, **kwargs)
    cc_toolchain(
        name = name,
        # Read only by qola's own rules that compile, not by links.
        all_files = compiler_files or scripts,
        ar_files = tool_files or scripts,
        as_files = compiler_files or scripts,
        compiler_files = compiler_files or scripts,
        dwp_files = tool_files or scripts,
        linker_files = linker_files or scripts,
        objcopy_files = tool_files or scripts,
        strip_files = tool_files or scripts,
        # The linker reads thousands of objects from a file, not from argv.
        supports_param_files = True,
        toolchain_config = name + "_config",
        toolchain_identifier = "rocm",
        visibility = ["//visibility:public"],
    )

def rocm_toolchain(name, cc_toolchain):
    """Registers a cc_toolchain for ROCm.

    Declare it in another repository than the compiler: Bazel loads every
    toolchain() that it may choose, but only the files of the chosen one.

    Args:
      name: name of the toolchain() target, for --@rules_hip//rocm:toolchain.
      cc_toolchain: label of a rocm_cc_toolchain.
    """

    # Label() resolves in this module: the caller need not depend on @platforms.
    system = [Label("@platforms//os:linux"), Label("@platforms//cpu:x86_64")]
    native.toolchain(
        name = name,
        exec_compatible_with = system,
        target_compatible_with = system + [Label("//rocm:rocm")],
        toolchain = cc_toolchain,
        toolchain_type = "@bazel_tools//tools/cpp:toolchain_type",
        visibility = ["//visibility:public"],
    )

_HIP = "sdk/rocm/lib/libamdhip64.so"
_GCC = "sdk/sysroot/usr/lib/gcc/x86_64-linux-gnu"

def _program(name, real):
    return ["sdk/bin/" + name, "sdk/libexec/" + real]

def rocm_sdk(name, optional_flags):
    """Declares the SDK's cc_toolchain and, for each kind of action, a group of the files it reads.

    The groups name files: directories would be fewer inputs, but Bazel warns of
    each in each action, unless a consumer starts its server with a flag.

    Args:
      name: name of the cc_toolchain. NAME_compiler, NAME_linker and NAME_tools
        are the groups, NAME_hip_headers is a library of HIP's headers for C++
        that is not HIP; NAME_hip_runtime links HIP's runtime.
      optional_flags: the flags of OPTIONAL_FLAGS that this compiler accepts, flat.
    """
    libraries = native.glob(["sdk/lib/*"])
    native.filegroup(
        name = name + "_compiler",
        srcs = _program("clang++", "clang") +
               _program("lld", "lld") +
               _program("clang-offload-bundler", "clang-offload-bundler") +
               # The bundler runs it.
               _program("llvm-objcopy", "llvm-objcopy") +
               libraries +
               native.glob([
                   "sdk/resource/**",
                   "sdk/rocm/amdgcn/**",
                   "sdk/rocm/include/**",
                   "sdk/rocm/share/**",
                   "sdk/sysroot/usr/include/**",
                   # By this file clang recognises GCC's directory.
                   _GCC + "/*/crtbegin.o",
               ]),
    )
    native.filegroup(
        name = name + "_linker",
        srcs = _program("clang++", "clang") +
               _program("ld.lld", "lld") +
               libraries +
               native.glob(
                   ["sdk/rocm/lib/**", "sdk/sysroot/**"],
                   exclude = ["sdk/sysroot/usr/include/**"],
               ),
    )
    native.filegroup(
        name = name + "_tools",
        srcs = native.glob(["sdk/bin/llvm-*", "sdk/lib-tools/*", "sdk/libexec/llvm-*"]) + libraries,
    )
    cc_library(
        name = name + "_hip_headers",
        hdrs = native.glob(["sdk/rocm/include/**"]),
        includes = ["sdk/rocm/include"],
    )

    # Also for linkers other than the SDK's: the library is linked by its path, and found at run time by its soname in
    # the machine's ROCm, as are the libraries that it needs.
    cc_library(
        name = name + "_hip_runtime",
        additional_linker_inputs = [_HIP],
        linkopts = [
            "$(location {})".format(_HIP),
            "-Wl,--allow-shlib-undefined",
        ],
    )
    rocm_cc_toolchain(
        name = name,
        compiler_files = name + "_compiler",
        linker_files = name + "_linker",
        optional_flags = optional_flags,
        sdk = True,
        tool_files = name + "_tools",
        tools = llvm_tools("sdk/bin/clang++", "sdk/bin"),
    )
