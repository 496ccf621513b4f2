#include "stretch.h"

#include <algorithm>

#include "parallel.h"
#include "scratch_memory.h"

namespace splitserve {
namespace {

constexpr int64_t kLocalBytes = 640 << 10;  // of a second-level cache of 1 MiB
constexpr int64_t kLeastRows = 36;          // that make it worth reading all weights for them
constexpr int64_t kRowStep = 6;             // what products take at once

int64_t local_row_bytes(const Program& program) {
  int64_t sum = 0;
  for (int64_t place = 0; place < program.num_places; ++place)
    if (program.places[place].is_local) sum += program.places[place].row_bytes;
  return sum;
}

// Into how many blocks the rows go; 1 when all go through one operation after the other.
int64_t count_blocks(const Program& program, const Run& run) {
  const int64_t most = kLocalBytes / std::max<int64_t>(1, local_row_bytes(program));
  if (most < kLeastRows) return 1;
  const int64_t per_thread = (run.num_rows - 1) / (run.num_threads * most) + 1;
  const int64_t blocks = per_thread * run.num_threads;
  return run.num_rows < blocks * kLeastRows ? 1 : blocks;
}

// Rows [first_row, first_row + num_rows) of the run's, on this thread.
void run_block(const Program& program, int64_t first, int64_t end, const Run& run,
               int64_t first_row, int64_t num_rows) {
  Run block = run;
  block.first_row += first_row;
  block.num_rows = num_rows;
  block.num_threads = 1;
  thread_local ScratchMemory memory;
  char* local = memory.fit(local_row_bytes(program) * num_rows + kLine * program.num_places);
  for (int64_t place = 0; place < program.num_places; ++place) {
    const Activations& shape = program.places[place];
    if (shape.is_local) {
      block.places[place] = local;
      local += (shape.row_bytes * num_rows + kLine - 1) / kLine * kLine;
    } else {
      block.places[place] += first_row * shape.row_bytes;
    }
  }
  for (int64_t i = first; i < end; ++i)
    program.operations[i].operate(program.operations[i].record, block);
}

}  // namespace

int64_t end_of_stretch(const Program& program, int64_t first) {
  int64_t end = first;
  while (end < program.num_operations && program.operations[end].by_rows) ++end;
  return end;
}

void run_stretch(const Program& program, int64_t first, int64_t end, Run& run) {
  const int64_t blocks = count_blocks(program, run);
  if (blocks == 1) {
    for (int64_t i = first; i < end; ++i)
      program.operations[i].operate(program.operations[i].record, run);
    return;
  }
  const auto bound = [&](int64_t block) {
    return block == blocks ? run.num_rows : run.num_rows * block / blocks / kRowStep * kRowStep;
  };
  parallel_for(blocks, run.num_threads, [&](int64_t block) {
    run_block(program, first, end, run, bound(block), bound(block + 1) - bound(block));
  });
}

}  // namespace splitserve
