// Compiles side by side: how many, and the threads that wait for them.
#ifndef QOLA_RUNTIME_JOBS_H
#define QOLA_RUNTIME_JOBS_H

#include <cstddef>
#include <functional>

namespace qola_runtime {

/// How many compiles to run at a time: what the user asked for, or, where that is 0, one for each
/// processor of this process, as far as the memory of now holds them. At least 1.
std::size_t compiles_at_a_time(int asked);

/// Calls `work` with each number below `count`, `at_a_time` at a time: in this thread and in others
/// that end before it returns. Where the system gives no more threads, with fewer. `work` throws
/// nothing.
void side_by_side(std::size_t count,
                  std::size_t at_a_time,
                  const std::function<void(std::size_t)>& work);

/// Does `work` in a thread of its own that nobody waits for; in this one where the system gives none.
/// `work` throws nothing, and uses nothing that ends before the process.
void in_background(const std::function<void()>& work);

} // namespace qola_runtime

#endif // QOLA_RUNTIME_JOBS_H
