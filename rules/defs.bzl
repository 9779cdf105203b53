"""The rules, macros and providers of qola for BUILD files.

One call of `qola_manifest_targets` declares every target of a manifest. To choose names, contents or attributes
yourself, call the rules that it calls.
"""

load("//rules/private:bundle.bzl", _qola_bundle = "qola_bundle", _qola_wheel = "qola_wheel")
load("//rules/private:emulation.bzl", _qola_numeric_test = "qola_numeric_test")
load("//rules/private:lazy.bzl", _qola_kernel_pack = "qola_kernel_pack")
load("//rules/private:library.bzl", _qola_library = "qola_library")
load("//rules/private:manifest_targets.bzl", _qola_manifest_targets = "qola_manifest_targets")
load("//rules/private:providers.bzl", _QolaLibraryInfo = "QolaLibraryInfo")
load("//rules/private:qola_cc_library.bzl", _qola_cc_library = "qola_cc_library")
load("//rules/private:static.bzl", _qola_static_library = "qola_static_library")
load("//rules/torch:torch_wheel.bzl", _qola_torch_wheel = "qola_torch_wheel")
load("//rules/triton:triton_kernel.bzl", _QolaTritonInfo = "QolaTritonInfo", _qola_triton_kernel = "qola_triton_kernel")
load("//rules/triton:triton_library.bzl", _qola_triton_library = "qola_triton_library")

qola_bundle = _qola_bundle
qola_cc_library = _qola_cc_library
qola_kernel_pack = _qola_kernel_pack
qola_library = _qola_library
qola_manifest_targets = _qola_manifest_targets
qola_numeric_test = _qola_numeric_test
qola_static_library = _qola_static_library
qola_torch_wheel = _qola_torch_wheel
qola_triton_kernel = _qola_triton_kernel
qola_triton_library = _qola_triton_library
qola_wheel = _qola_wheel
QolaLibraryInfo = _QolaLibraryInfo
QolaTritonInfo = _QolaTritonInfo
