// A module that takes the types of another one, as module_moe_asm does. Its default argument
// needs a registered type when it is imported.

#include "tests/torch/types.h"

#include <pybind11/pybind11.h>

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    m.def(
        "twice",
        [](aiter::aiter_tensor_t& tensor, ActivationType activation) {
            tensor.size *= 2;
            return activation;
        },
        pybind11::arg("tensor"),
        pybind11::arg("activation") = ActivationType::Silu);
}
