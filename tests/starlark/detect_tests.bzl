"""Unit tests of ROCm detection: what hipcc prints, read right."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")
load("//rules/rocm:detect.bzl", "candidate_prefixes", "optional_flags", "parse_include_dirs", "parse_version")
load("//rules/rocm:repositories.bzl", "choice")

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
    pinned = struct(mode = "pinned", path = "")
    asserts.equals(env, pinned, choice(None, ""))
    asserts.equals(env, pinned, choice("", ""))
    asserts.equals(env, pinned, choice("pinned", "/tag"))
    asserts.equals(env, struct(mode = "local", path = ""), choice("local", ""))
    asserts.equals(env, struct(mode = "local", path = "/tag"), choice("local", "/tag"))
    asserts.equals(env, struct(mode = "local", path = "/tag"), choice(None, "/tag"))
    asserts.equals(env, struct(mode = "local", path = "/env"), choice("/env", "/tag"))
    asserts.equals(env, None, choice("newest", ""))
    return unittest.end(env)

choice_test = unittest.make(_choice_test)
version_test = unittest.make(_version_test)
include_dirs_test = unittest.make(_include_dirs_test)
optional_flags_test = unittest.make(_optional_flags_test)
candidates_test = unittest.make(_candidates_test)

def detect_test_suite(name):
    """Declares the tests of this file.

    Args:
      name: name of the test suite.
    """
    unittest.suite(name, choice_test, version_test, include_dirs_test, optional_flags_test, candidates_test)
