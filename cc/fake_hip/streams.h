// The interface to streams for other parts of the fake runtime.
#pragma once

#include <hip/hip_runtime_api.h>

namespace fake_hip {

/// Ordinal of a stream: 0 for the default stream, then 1, 2, ... in order of creation; -1 for a
/// handle that is not a stream of this process.
int stream_number(hipStream_t stream);

} // namespace fake_hip
