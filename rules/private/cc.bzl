"""Parts that rules which compile and link have in common."""

load("@rules_cc//cc:defs.bzl", "CcInfo", "cc_common")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cpp_toolchain")

# Attributes of targets whose actions make kernels and libraries.
KERNEL_TARGET = {
    # Requirements on remote workers, with names and values of the Remote
    # Execution API's platform lexicon. They are set on targets, not by an
    # option, because they are part of every action's key: local and remote
    # builds share one cache.
    "exec_properties": {
        "ISA": "x86-64",
        "OSFamily": "linux",
    },
    # Without the transition a host compiler would compile HIP.
    "target_compatible_with": [Label("//rules/rocm:rocm")],
}

# Symbols that systems of manylinux_2_28 lack: for a library, and for objects
# that are linked elsewhere.
OLDER_SYSTEMS = Label("//runtime/older_systems")
OLDER_SYSTEMS_NAMES = Label("//runtime/older_systems:names")

# A linker script for -Wl,-T; without it each exception ends the process, see
# the file.
LARGE_CODE = Label("//rules/private:large_code.ld")

# Where pip installs HIP's runtime, seen from a library in a package of site-packages or in a directory of one:
# _rocm_sdk_core of AMD's wheel rocm-sdk-core, and rocm. A directory that does not exist costs nothing. JAX's wheels for
# ROCm have the same entries. LD_LIBRARY_PATH comes before them, /etc/ld.so.cache after them. Only wheels show them to the
# dynamic linker: strip.sh hides them, since the directory above another library may be one in which others can write.
RUNPATH_FLAGS = [
    "-Wl,-rpath,$ORIGIN/{}{}/lib".format(up, package)
    for package in ["_rocm_sdk_core", "rocm"]
    for up in ["../", "../../"]
]

# Link flags of a kernel library, whether Bazel links it or later a user's
# machine. HIP's runtime comes last, and LARGE_CODE by -Wl,-T.
KERNEL_LINK_FLAGS = [
    "-shared",
    # The driver's own choice of HIP's runtime differs between hipcc and clang++.
    "-no-hip-rt",
    "-fuse-ld=lld",
    "-Wl,--gc-sections",
    "-Wl,-z,defs",
    # Kernels of another AITER in the process must not replace this library's.
    "-Wl,-Bsymbolic",
]

def cc_features(ctx, requested = [], unsupported = [], toolchain = None):
    """Returns struct(toolchain, features): a C++ toolchain with `requested` features added and `unsupported` disabled.

    Without `toolchain`, it is that of the rule's configuration.
    """
    toolchain = toolchain or find_cpp_toolchain(ctx)
    return struct(
        features = cc_common.configure_features(
            ctx = ctx,
            cc_toolchain = toolchain,
            requested_features = ctx.features + requested,
            unsupported_features = ctx.disabled_features + unsupported,
        ),
        toolchain = toolchain,
    )

def object_context(ctx, toolchain, features, object):
    """Returns the linking context of the one object of a target.

    Args:
      ctx: the rule context.
      toolchain: CcToolchainInfo.
      features: its feature configuration.
      object: File, compiled with -fPIC.
    """
    context, _ = cc_common.create_linking_context_from_compilation_outputs(
        # cc_shared_library links only objects whose name is that of their target.
        name = ctx.label.name,
        actions = ctx.actions,
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(pic_objects = depset([object])),
        disallow_dynamic_library = True,
        feature_configuration = features,
    )
    return context

def llvm_program(toolchain, name):
    """Returns the path of an LLVM program of the ROCm toolchain, such as llvm-objcopy."""
    return toolchain.ld_executable.rpartition("/")[0] + "/" + name

def llvm_action(ctx, toolchain, program, arguments, inputs, output, mnemonic, message):
    """Declares an action that runs one of the toolchain's LLVM programs.

    Args:
      ctx: the rule context.
      toolchain: CcToolchainInfo of the ROCm toolchain.
      program: name of the program, such as llvm-objcopy.
      arguments: list of Args or strings.
      inputs: list of File.
      output: File to write.
      mnemonic: mnemonic of the action.
      message: progress message.
    """
    ctx.actions.run(
        arguments = arguments,
        executable = llvm_program(toolchain, program),
        execution_requirements = {"supports-path-mapping": "1"},
        inputs = depset(inputs, transitive = [toolchain.all_files]),
        mnemonic = mnemonic,
        outputs = [output],
        progress_message = message,
    )

# For rules that call linking_context.
LINK_ATTRS = {
    "_hip_runtime": attr.label(default = "@qola_rocm//:hip_runtime", providers = [CcInfo]),
}

def linking_context(ctx, hip = None, **library):
    """Returns the LinkingContext by which a program links one library of a manifest.

    Args:
      ctx: the rule context.
      hip: CcInfo of HIP's runtime, which the library and inline functions of the public headers
        call. None links the machine's libamdhip64, without fetching a ROCm.
      **library: the file, as an argument of create_library_to_link.
    """
    found = cc_features(ctx)
    own = cc_common.create_linking_context(linker_inputs = depset([
        cc_common.create_linker_input(
            owner = ctx.label,
            libraries = depset([cc_common.create_library_to_link(
                actions = ctx.actions,
                cc_toolchain = found.toolchain,
                feature_configuration = found.features,
                **library
            )]),
            user_link_flags = depset([] if hip else ["-lamdhip64"]),
        ),
    ]))
    return cc_common.merge_linking_contexts(linking_contexts = [own] + ([hip.linking_context] if hip else []))
