// A module without PyTorch that registers types for others, as module_aiter_core does.

#include "tests/torch/types.h"

#include <pybind11/pybind11.h>

PYBIND11_MODULE(registers_types, m)
{
    pybind11::class_<aiter::aiter_tensor_t>(m, "aiter_tensor_t")
        .def(pybind11::init<long>())
        .def_readwrite("size", &aiter::aiter_tensor_t::size);
    pybind11::enum_<ActivationType>(m, "ActivationType")
        .value("Silu", ActivationType::Silu)
        .value("Gelu", ActivationType::Gelu);
}
