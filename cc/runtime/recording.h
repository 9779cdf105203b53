// Which kernels a call launches, learnt by asking for it once more while nothing is launched.
#ifndef QOLA_RUNTIME_RECORDING_H
#define QOLA_RUNTIME_RECORDING_H

#include <vector>

namespace qola_lazy {

/// Rows of the kernels that this thread's call launches, each once, `first` before the others. `first`
/// alone outside of a call, where it may not be repeated, and where it is being recorded.
std::vector<unsigned> rows_of_call(unsigned first);

} // namespace qola_lazy

#endif // QOLA_RUNTIME_RECORDING_H
