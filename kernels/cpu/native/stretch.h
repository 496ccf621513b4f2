// A stretch of a program: operations in a row of which each result depends on its own row alone.
//
// Of many rows, some at a time pass through the whole stretch on one thread. What lies between two
// operations then stays in that core's second-level cache, and threads meet once per stretch instead
// of once per operation. The bits are those of all rows at once.
#pragma once

#include "step_program.h"

namespace splitserve {

// Where the stretch ends that begins with this operation; `first` itself when it begins none.
int64_t end_of_stretch(const Program& program, int64_t first);

void run_stretch(const Program& program, int64_t first, int64_t end, Run& run);

}  // namespace splitserve
