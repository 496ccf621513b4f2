// Work sharing for loops of a few microseconds.
#pragma once

#include <cstdint>

namespace splitserve {

using Task = void (*)(const void* context, int64_t index);

enum class Claim {
  kSingly,  // one task at a time: for tasks of different length, longest first
  kInRuns,  // some at once, fewer towards the end: for many short tasks that are alike
};

// Runs task(context, i) for 0 <= i < count on the caller and up to num_threads - 1 helpers.
void run_parallel(int64_t count, int num_threads, Claim claim, Task task, const void* context);

template <class Body>
inline void parallel_for(int64_t count, int num_threads, const Body& body,
                         Claim claim = Claim::kSingly) {
  run_parallel(
      count, num_threads, claim,
      [](const void* context, int64_t index) { (*static_cast<const Body*>(context))(index); },
      &body);
}

}  // namespace splitserve
