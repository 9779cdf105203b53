// Runs compiles concurrently.
#pragma once

#include <cstddef>
#include <functional>

namespace qola_runtime {

/// Returns the number of concurrent compiles: the user's choice or, if that is 0, one per processor of
/// this process, limited by free memory. At least 1.
std::size_t compiles_at_a_time(int asked);

/// Calls `work` with each number below `count`, with `at_a_time` threads including this one, or fewer
/// if the system refuses threads. Returns after all calls. `work` must not throw.
void side_by_side(std::size_t count,
                  std::size_t at_a_time,
                  const std::function<void(std::size_t)>& work);

/// Runs `work` in a detached thread, or in this one if the system refuses a thread. `work` must not
/// throw, and must only use objects that live as long as the process.
void in_background(const std::function<void()>& work);

} // namespace qola_runtime
