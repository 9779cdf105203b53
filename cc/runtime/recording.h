// Finds the kernels of a call by repeating it in a mode that launches nothing.
#ifndef QOLA_RUNTIME_RECORDING_H
#define QOLA_RUNTIME_RECORDING_H

#include <vector>

namespace qola_lazy {

/// Returns the rows of the kernels that this thread's call launches, each once, with `first` first.
/// Returns only `first` outside of a call, for a call that must not be repeated, and while recording.
std::vector<unsigned> rows_of_call(unsigned first);

} // namespace qola_lazy

#endif // QOLA_RUNTIME_RECORDING_H
