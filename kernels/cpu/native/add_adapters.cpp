// What adapters add beside a product: out[row] += (x[row] @ down.T) @ up, by each row's slot.
//
//   down  [num_ranks][in_width]   up  [num_ranks][width]   an adapter has a run of the ranks
//
// Rows of one slot go together, a few at a time, so that an adapter is read once for them. Each value
// of a row is one chain of multiply-adds over the inputs, and one over the ranks, whatever rows go
// beside it: its bits do not depend on them. Rows of slot 0 are neither read nor written.
#include <algorithm>
#include <cstring>
#include <vector>

#include "operations.h"
#include "parallel.h"
#include "row_block.h"
#include "scratch_memory.h"
#include "step_program.h"

namespace splitserve {

struct AdapterPart {
  const void* down;
  const void* up;
  const int32_t* ranks;  // [num_slots]
  int64_t first_column, width;
};

namespace {

constexpr int64_t kMostRows = 8;  // of a task
constexpr int64_t kMostRank = 256;

struct Rows {
  const char* x;
  int64_t x_bytes;
  char* out;
  int64_t out_bytes;
};

// Some rows of one slot, at one part.
struct RowTask {
  const int32_t* rows;
  int64_t num_rows;
  const AdapterPart* part;
  int64_t first_rank, num_ranks;
};

// What comes next, asked for a few lines at a time while the arithmetic goes on: a task reads runs
// that are too short for the processor to see where they lead. 8 adapters of rank 8 beside 16 rows of
// SmolLM2, one thread: 1.7 ms, and 4.5 without.
struct Ahead {
  const char* at;
  const char* end;
  void some(int64_t lines) {
    for (; lines > 0 && at < end; --lines, at += kLine) _mm_prefetch(at, _MM_HINT_T0);
  }
};

// made[r][rank] of R rows: J ranks side by side, so that chains fill the pipeline where rows are few.
template <class E, int R, int J>
void shrink(const RowTask& task, const Word* const (&x)[R], int64_t num_words, float* made,
            Ahead ahead) {
  const int64_t turns = (task.num_ranks + J - 1) / J * ((num_words + 15) / 16);
  const int64_t lines = (ahead.end - ahead.at) / kLine / turns + 1;
  const auto* down = static_cast<const Word*>(task.part->down) + task.first_rank * num_words;
  for (int64_t first = 0; first < task.num_ranks; first += J) {
    const Word* rank[J];
    __m512 sums[J][R];
#pragma GCC unroll 8
    for (int j = 0; j < J; ++j) {
      rank[j] = down + std::min(first + j, task.num_ranks - 1) * num_words;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[j][r] = _mm512_setzero_ps();
    }
    for (int64_t word = 0; word < num_words; word += 16) {
      const __mmask16 mask = first_lanes(num_words - word);
      __m512i values[R];
      ahead.some(lines);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) values[r] = _mm512_maskz_loadu_epi32(mask, x[r] + word);
#pragma GCC unroll 8
      for (int j = 0; j < J; ++j) {
        const __m512i weights = _mm512_maskz_loadu_epi32(mask, rank[j] + word);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sums[j][r] = E::multiply_add(sums[j][r], values[r], weights);
      }
    }
    for (int j = 0; j < J && first + j < task.num_ranks; ++j)
      for (int r = 0; r < R; ++r)
        made[r * kMostRank + first + j] = _mm512_reduce_add_ps(sums[j][r]);
  }
}

// Adds the made ranks to 16 V columns of R rows at a time.
template <class E, int R, int V>
void expand(const RowTask& task, typename E::Value* const (&out)[R], const float* made,
            Ahead ahead) {
  using Value = typename E::Value;
  const int64_t width = task.part->width;
  const Value* up = static_cast<const Value*>(task.part->up) + task.first_rank * width;
  const int64_t turns = (width + 16 * V - 1) / (16 * V) * task.num_ranks;
  const int64_t lines = (ahead.end - ahead.at) / kLine / turns + 1;
  for (int64_t column = 0; column < width; column += 16 * V) {
    __mmask16 masks[V];
    __m512 sums[R][V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      masks[v] = first_lanes(std::max<int64_t>(0, width - column - 16 * v));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[r][v] = _mm512_setzero_ps();
    }
    for (int64_t rank = 0; rank < task.num_ranks; ++rank) {
      const Value* from = up + rank * width + column;
      ahead.some(lines);
      __m512 weights[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) weights[v] = E::load_some(from + 16 * v, masks[v]);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 value = _mm512_set1_ps(made[r * kMostRank + rank]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sums[r][v] = _mm512_fmadd_ps(weights[v], value, sums[r][v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        Value* to = out[r] + column + 16 * v;
        E::store_some(to, _mm512_add_ps(E::load_some(to, masks[v]), sums[r][v]), masks[v]);
      }
    }
  }
}

template <class E, int R>
void run_task(const Rows& all, const RowTask& task, const RowTask* next, int64_t num_words) {
  using Value = typename E::Value;
  constexpr int kBeside = R <= 2 ? 8 : R <= 4 ? 4 : 2;
  thread_local ScratchMemory memory;
  auto* made = reinterpret_cast<float*>(memory.fit(kMostRows * kMostRank * sizeof(float)));
  const Word* x[R];
  Value* out[R];
  for (int r = 0; r < R; ++r) {
    x[r] = reinterpret_cast<const Word*>(all.x + task.rows[r] * all.x_bytes);
    out[r] = reinterpret_cast<Value*>(all.out + task.rows[r] * all.out_bytes) +
             task.part->first_column;
  }
  const auto run_of = [](const void* matrix, const RowTask& its, int64_t row_bytes) {
    const char* first = static_cast<const char*>(matrix) + its.first_rank * row_bytes;
    return Ahead{first, first + its.num_ranks * row_bytes};
  };
  const int64_t down_bytes = num_words * static_cast<int64_t>(sizeof(Word));
  shrink<E, R, kBeside>(task, x, num_words, made,
                        run_of(task.part->up, task, task.part->width * sizeof(Value)));
  expand<E, R, kBeside>(task, out, made,
                        next == nullptr ? Ahead{nullptr, nullptr}
                                        : run_of(next->part->down, *next, down_bytes));
}

// The rows that have an adapter, those of one slot beside each other.
void order_rows(const int32_t* slots, const int64_t* tokens, int64_t num_rows,
                std::vector<int32_t>& of_row, std::vector<int32_t>& rows) {
  of_row.resize(num_rows);
  rows.clear();
  for (int64_t row = 0; row < num_rows; ++row) {
    of_row[row] = slots[tokens == nullptr ? row : tokens[row]];
    if (of_row[row] != 0) rows.push_back(static_cast<int32_t>(row));
  }
  const auto is_before = [&](int32_t a, int32_t b) { return of_row[a] < of_row[b]; };
  if (!std::is_sorted(rows.begin(), rows.end(), is_before))
    std::stable_sort(rows.begin(), rows.end(), is_before);
}

template <class E>
void add(const Rows& all, int64_t in_width, const std::vector<RowTask>& tasks, int num_threads) {
  parallel_for(static_cast<int64_t>(tasks.size()), num_threads, [&](int64_t at) {
    const RowTask& task = tasks[at];
    const int64_t after = at + num_threads;  // the one that this thread will probably have
    const RowTask* next = after < static_cast<int64_t>(tasks.size()) ? &tasks[after] : nullptr;
    with_count<kMostRows>(task.num_rows, [&](auto count) {
      run_task<E, decltype(count)::value>(all, task, next, in_width / E::kPerWord);
    });
  });
}

}  // namespace
}  // namespace splitserve

// `tokens`: of each row its place among `slots`; null: they have the same order.
extern "C" void splitserve_add_adapters(int32_t dtype, const void* x, int64_t in_width, void* out,
                                        int64_t out_width, const int32_t* slots,
                                        const int64_t* tokens, int64_t num_rows,
                                        const int32_t* starts,
                                        const splitserve::AdapterPart* parts, int64_t num_parts,
                                        int32_t num_threads) {
  using namespace splitserve;
  thread_local std::vector<int32_t> of_row, rows;
  thread_local std::vector<RowTask> tasks;
  order_rows(slots, tokens, num_rows, of_row, rows);
  tasks.clear();
  const auto count = static_cast<int64_t>(rows.size());
  for (int64_t first = 0; first < count;) {
    const int32_t slot = of_row[rows[first]];
    int64_t end = first + 1;
    while (end < count && end - first < kMostRows && of_row[rows[end]] == slot) ++end;
    for (int64_t part = 0; part < num_parts; ++part)
      if (parts[part].ranks[slot] > 0)
        tasks.push_back({rows.data() + first, end - first, parts + part, starts[slot],
                         parts[part].ranks[slot]});
    first = end;
  }
  const int64_t item = dtype == kFloat32 ? 4 : 2;
  const Rows all{static_cast<const char*>(x), in_width * item, static_cast<char*>(out),
                 out_width * item};
  (dtype == kFloat32 ? add<Float32> : add<BFloat16>)(all, in_width, tasks, num_threads);
}

namespace splitserve {
namespace {

struct AddAdapters {
  const AdapterPart* parts;
  const int32_t* starts;
  int64_t num_parts, dtype, x, in_width, out, out_width, is_wanted;
};

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_run_add_adapters(const void* record, splitserve::Run& run) {
  using namespace splitserve;
  const auto& op = *static_cast<const AddAdapters*>(record);
  const Step& step = run.step;
  const int64_t* tokens = op.is_wanted ? step.logit_rows + run.first_row : nullptr;
  splitserve_add_adapters(static_cast<int32_t>(op.dtype), run.at<void>(op.x), op.in_width,
                          run.at<void>(op.out), op.out_width,
                          op.is_wanted ? step.adapters : step.adapters + run.first_row, tokens,
                          run.num_rows, op.starts, op.parts, op.num_parts, run.num_threads);
}
