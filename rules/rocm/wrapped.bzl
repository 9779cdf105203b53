"""What of HIP a library calls by way of functions of its own."""

# For the linker: HIP's functions before which //cc/api:launches puts others, in each library.
WRAPPED = [
    "--wrap=hipLaunchHostFunc",
    "--wrap=hipLaunchKernel",
    "--wrap=hipMemcpyAsync",
    "--wrap=hipMemsetAsync",
    "--wrap=hipModuleLaunchKernel",
]
