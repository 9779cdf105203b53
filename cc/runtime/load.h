// Loads kernel libraries into this process.
#pragma once

#include "qola_kernel.h"
#include "store.h"

#include <string>

namespace qola_runtime {

/// Loads a kernel library, for the life of the process, and returns its functions. Throws Problem.
const qola_kernel_function* load(const Library& library, const std::string& name);

} // namespace qola_runtime
