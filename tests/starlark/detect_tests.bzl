"""Unit tests of ROCm detection: what hipcc prints, read right."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")
load("@rules_hip//rocm:detect.bzl", "candidate_prefixes", "failed_command", "optional_flags", "parse_device_libraries", "parse_include_dirs", "parse_version")
load("@rules_hip//rocm:repositories.bzl", "choice", "missing_rocm")

_DEBIAN = """HIP version: 7.2.53211-9999
Debian clang version 22.1.8 (1+b2)
Target: x86_64-pc-linux-gnu
Thread model: posix
InstalledDir: /usr/lib/llvm-22/bin
"""

_AMD = """HIP version: 6.4.43484-123eb5128
AMD clang version 19.0.0git (https://github.com/RadeonOpenCompute/llvm-project roc-6.4.2)
Target: x86_64-unknown-linux-gnu
Thread model: posix
InstalledDir: /opt/rocm-6.4.2/lib/llvm/bin
Configuration file: /opt/rocm-6.4.2/lib/llvm/bin/clang++.cfg
"""

def _version_test(ctx):
    """Prevents: a ROCm that is there is reported missing, or upstream clang is taken for AMD's."""
    env = unittest.begin(ctx)
    debian = parse_version(_DEBIAN)
    asserts.equals(env, "7.2.53211", debian.hip_version)
    asserts.equals(env, "22.1.8", debian.clang_version)
    asserts.equals(env, "/usr/lib/llvm-22/bin", debian.clang_dir)
    asserts.false(env, debian.amd_clang)
    amd = parse_version(_AMD)
    asserts.true(env, amd.amd_clang)
    asserts.equals(env, "/opt/rocm-6.4.2/lib/llvm/bin", amd.clang_dir)
    asserts.equals(env, None, parse_version("hipcc: command not found"))
    return unittest.end(env)

def _include_dirs_test(ctx):
    """Prevents: "undeclared inclusion" of the compiler's own headers, or of device-only ones."""
    env = unittest.begin(ctx)
    text = """ignoring nonexistent directory "/include"
#include "..." search starts here:
#include <...> search starts here:
 /usr/lib/clang/include
 /usr/include
End of search list.
 "/usr/bin/clang" -cc1
#include <...> search starts here:
 /usr/lib/clang/include
 /usr/include/c++/16
End of search list.
"""
    asserts.equals(env, ["/usr/lib/clang/include", "/usr/include", "/usr/include/c++/16"], parse_include_dirs(text))
    return unittest.end(env)

def _device_libraries_test(ctx):
    """Prevents: device libraries of TheRock's layout, or of a distribution, that no cache key has."""
    env = unittest.begin(ctx)
    text = ' "{0}/bin/clang" -cc1 -mlink-builtin-bitcode {0}/amdgcn/bitcode/ocml.bc ' + \
           "-mlink-builtin-bitcode {0}/amdgcn/bitcode/ockl.bc -target-cpu gfx942\n"
    for llvm in ["/venv/_rocm_sdk_core/lib/llvm", "/opt/rocm", "/usr/lib/clang/22"]:
        asserts.equals(env, [llvm + "/amdgcn/bitcode"], parse_device_libraries(text.format(llvm)))
    quoted = ' -mlink-builtin-bitcode "/my rocm/amdgcn/bitcode/ocml.bc" -mlink-builtin-bitcode /asan/asanrtl.bc\n'
    asserts.equals(env, ["/my rocm/amdgcn/bitcode", "/asan"], parse_device_libraries(quoted))
    asserts.equals(env, [], parse_device_libraries(' "clang" -cc1 -nogpulib\n'))
    return unittest.end(env)

def _failed_command_test(ctx):
    """Prevents: a hipcc that does not start is called missing, and its own words are dropped."""
    env = unittest.begin(ctx)
    failed = struct(return_code = 127, stderr = "libnuma.so.1: cannot open\nEOF\n", stdout = "HIP version: 7\n")
    text = failed_command("/my/bin/hipcc", "--version", failed)
    asserts.equals(env, "/my/bin/hipcc --version: exit code 127\nlibnuma.so.1: cannot open\nEOF", text)
    script = missing_rocm("QOLA_ROCM=/my", [text], "rules_hip~~hip~rocm").split("\n")
    asserts.equals(env, ["EOF", "exit 1", ""], script[-3:])
    asserts.equals(env, 1, len([line for line in script if line == "EOF"]), "a text that ends the document")
    for line in ["  place:    QOLA_ROCM=/my", "            libnuma.so.1: cannot open"]:
        asserts.true(env, line in script, str(script))
    silent = failed_command("hipcc", "-v", struct(return_code = 1, stderr = "", stdout = ""))
    asserts.equals(env, "hipcc -v: exit code 1\nit prints nothing", silent)
    long = failed_command("hipcc", "-v", struct(return_code = 1, stderr = "error\n" * 1000, stdout = ""))
    asserts.equals(env, "...", long.split("\n")[-1])
    asserts.true(env, len(long) < 1000, "a message of pages")
    return unittest.end(env)

def _optional_flags_test(ctx):
    """Prevents: upstream clang gets the pair that turns 20 s a kernel into 10 minutes."""
    env = unittest.begin(ctx)
    everything = lambda _flag: True
    upstream = optional_flags(everything, False)
    asserts.true(env, "-amdgpu-early-inline-all=true" in upstream)
    asserts.false(env, "-amdgpu-function-calls=false" in upstream)
    asserts.true(env, "-amdgpu-function-calls=false" in optional_flags(everything, True))
    asserts.equals(env, [], optional_flags(lambda _flag: False, True))
    return unittest.end(env)

def _candidates_test(ctx):
    """Prevents: a ROCm named by the user is passed over for another one."""
    env = unittest.begin(ctx)
    asserts.equals(env, ["/my/rocm"], candidate_prefixes("/my/rocm", "/env/rocm"))
    asserts.equals(env, ["/env/rocm"], candidate_prefixes("", "/env/rocm"))
    asserts.equals(env, ["/opt/rocm", "/usr"], candidate_prefixes("", None))
    return unittest.end(env)

def _choice_test(ctx):
    """Prevents: a build with another ROCm than the one that was asked for."""
    env = unittest.begin(ctx)

    def check(environment, path, mode, prefix, place):
        chosen = choice(environment, path)
        asserts.equals(env, (mode, prefix), (chosen.mode, chosen.path))
        asserts.true(env, place in chosen.place, chosen.place)

    check(None, "", "pinned", "", "")
    check("", "", "pinned", "", "")
    check("pinned", "/tag", "pinned", "", "QOLA_ROCM=pinned")
    check("local", "", "local", "", "QOLA_ROCM=local")
    check("local", "/tag", "local", "/tag", 'hip.toolkit(path = "/tag")')
    check(None, "/tag", "local", "/tag", 'hip.toolkit(path = "/tag")')
    check("/env", "/tag", "local", "/env", "QOLA_ROCM=/env")
    asserts.equals(env, None, choice("newest", ""))
    return unittest.end(env)

choice_test = unittest.make(_choice_test)
device_libraries_test = unittest.make(_device_libraries_test)
failed_command_test = unittest.make(_failed_command_test)
version_test = unittest.make(_version_test)
include_dirs_test = unittest.make(_include_dirs_test)
optional_flags_test = unittest.make(_optional_flags_test)
candidates_test = unittest.make(_candidates_test)

def detect_test_suite(name):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
    """
    unittest.suite(name, choice_test, device_libraries_test, failed_command_test, version_test, include_dirs_test, optional_flags_test, candidates_test)
