"""qola's public rules and macros.

A user's BUILD file needs one call of `qola_manifest_targets` for a manifest,
or, for other choices than it makes, the rules that it calls: `qola_library`,
`qola_static`, `qola_bundle`, `qola_wheel`, and `kernel_pack` for kernels that
lazy libraries load. `qola_cc_library` compiles sources that include their headers. `kernel_numeric_test` tries kernels without a GPU. The
others are what a generated repository calls; they are public, so that such a
repository can be read.
"""

load("//rules/private:providers.bzl", _QolaLibraryInfo = "QolaLibraryInfo")
load("//rules/private/compile:embedded_code_objects.bzl", _embedded_code_objects = "embedded_code_objects")
load("//rules/private/compile:header_set.bzl", _header_set = "header_set")
load("//rules/private/compile:kernel_instances.bzl", _kernel_instances = "kernel_instances")
load("//rules/private/link:module_library.bzl", _module_library = "module_library")
load("//rules/private/link:prebuilt_library.bzl", _prebuilt_library = "prebuilt_library")
load("//rules/private/link:public_headers.bzl", _public_headers = "public_headers")
load("//rules/private/link:python_module.bzl", _python_module = "python_module")
load("//rules/private/link:qola_cc_library.bzl", _qola_cc_library = "qola_cc_library")
load("//rules/private/link:qola_library.bzl", _qola_library = "qola_library")
load("//rules/private/package:bundle_files.bzl", _bundle_files = "bundle_files")
load("//rules/private/package:kernel_pack.bzl", _kernel_pack = "kernel_pack")
load("//rules/private/package:manifest_targets.bzl", _manifest_targets = "manifest_targets", _qola_manifest_targets = "qola_manifest_targets")
load("//rules/private/package:numeric_test.bzl", _kernel_numeric_test = "kernel_numeric_test")
load("//rules/private/package:qola_bundle.bzl", _qola_bundle = "qola_bundle")
load("//rules/private/package:qola_static.bzl", _qola_static = "qola_static")
load("//rules/private/package:qola_wheel.bzl", _qola_wheel = "qola_wheel")
load("//rules/torch:torch_module.bzl", _torch_module = "torch_module")
load("//rules/torch:torch_wheel.bzl", _torch_wheel = "torch_wheel")
load("//rules/triton:triton_kernel.bzl", _TritonKernelsInfo = "TritonKernelsInfo", _triton_kernel = "triton_kernel")
load("//rules/triton:triton_library.bzl", _triton_library = "triton_library")

kernel_numeric_test = _kernel_numeric_test
kernel_pack = _kernel_pack
qola_bundle = _qola_bundle
qola_cc_library = _qola_cc_library
qola_library = _qola_library
qola_manifest_targets = _qola_manifest_targets
qola_static = _qola_static
qola_wheel = _qola_wheel
triton_kernel = _triton_kernel
triton_library = _triton_library
QolaLibraryInfo = _QolaLibraryInfo
TritonKernelsInfo = _TritonKernelsInfo

bundle_files = _bundle_files
embedded_code_objects = _embedded_code_objects
header_set = _header_set
kernel_instances = _kernel_instances
manifest_targets = _manifest_targets
module_library = _module_library
prebuilt_library = _prebuilt_library
public_headers = _public_headers
python_module = _python_module
torch_module = _torch_module
torch_wheel = _torch_wheel
