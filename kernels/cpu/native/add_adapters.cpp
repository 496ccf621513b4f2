// What adapters add beside a product: out[row] += (x[row] @ down.T) @ up, by each row's slot.
//
//   down  [num_ranks][in_width]   up  [num_ranks][width]   an adapter has a run of the ranks
//
// Rows of one slot go together, a few at a time, so that an adapter is read once for them. Each value
// of a row is one chain of multiply-adds over the inputs, and one over the ranks, whatever rows go
// beside it: its bits do not depend on them. Rows of slot 0 are neither read nor written.
#include <algorithm>

#include "adapter_tasks.h"
#include "operations.h"
#include "parallel.h"
#include "row_block.h"
#include "scratch_memory.h"
#include "step_program.h"

namespace splitserve {
namespace {

struct Rows {
  const char* x;
  int64_t x_bytes;
  char* out;
  int64_t out_bytes;
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

// Lane n: all lanes of sums[n], in the order in which _mm512_reduce_add_ps adds them, for a third of
// what sixteen of those take.
inline __attribute__((always_inline)) __m512 totals(const __m512 (&sums)[16]) {
  __m512 some[16];
#pragma GCC unroll 16
  for (int n = 0; n < 16; ++n) some[4 * (n % 4) + n / 4] = sums[n];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    some[i] = _mm512_add_ps(_mm512_shuffle_f32x4(some[2 * i], some[2 * i + 1], 0x44),
                            _mm512_shuffle_f32x4(some[2 * i], some[2 * i + 1], 0xee));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    some[i] = _mm512_add_ps(_mm512_shuffle_f32x4(some[2 * i], some[2 * i + 1], 0x88),
                            _mm512_shuffle_f32x4(some[2 * i], some[2 * i + 1], 0xdd));
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    some[i] = _mm512_add_ps(_mm512_shuffle_ps(some[2 * i], some[2 * i + 1], 0x44),
                            _mm512_shuffle_ps(some[2 * i], some[2 * i + 1], 0xee));
  return _mm512_add_ps(_mm512_shuffle_ps(some[0], some[1], 0x88),
                       _mm512_shuffle_ps(some[0], some[1], 0xdd));
}

// made[rank][R] of R rows: J ranks side by side, so that chains fill the pipeline where rows are few.
template <class E, int R, int J>
void shrink(const AdapterTask& task, const Word* const (&x)[R], int64_t num_words, float* made,
            Ahead ahead) {
  static_assert(R * J <= 16);
  const int64_t turns = (task.num_ranks + J - 1) / J * ((num_words + 15) / 16);
  const int64_t lines = (ahead.end - ahead.at) / kLine / turns + 1;
  const auto* down = static_cast<const Word*>(task.part->down) + task.first_rank * num_words;
  for (int64_t first = 0; first < task.num_ranks; first += J) {
    const Word* rank[J];
    for (int j = 0; j < J; ++j)
      rank[j] = down + std::min(first + j, task.num_ranks - 1) * num_words;
    __m512 sums[16];
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) sums[n] = _mm512_setzero_ps();
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
        for (int r = 0; r < R; ++r)
          sums[j * R + r] = E::multiply_add(sums[j * R + r], values[r], weights);
      }
    }
    const int64_t count = std::min<int64_t>(J, task.num_ranks - first) * R;
    _mm512_mask_storeu_ps(made + first * R, first_lanes(count), totals(sums));
  }
}

// 16 V columns of a row, `left` of which are there, as V vectors of float32.
template <class E, int V>
struct Columns {
  __mmask16 masks[V];

  explicit Columns(int64_t left) {
    for (int v = 0; v < V; ++v) masks[v] = first_lanes(std::max<int64_t>(0, left - 16 * v));
  }
  inline __attribute__((always_inline)) void load(const float* from, __m512 (&to)[V]) const {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) to[v] = _mm512_maskz_loadu_ps(masks[v], from + 16 * v);
  }
  inline __attribute__((always_inline)) void store(float* to, const __m512 (&values)[V]) const {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) _mm512_mask_storeu_ps(to + 16 * v, masks[v], values[v]);
  }
};

// Of 32 columns every other one in a vector: they are widened where they lie, without a shuffle.
template <int V>
struct Columns<BFloat16, V> {
  __mmask32 masks[V / 2];

  explicit Columns(int64_t left) {
    for (int v = 0; v < V / 2; ++v) {
      const int64_t count = std::max<int64_t>(0, left - 32 * v);
      masks[v] = count >= 32 ? 0xffffffffu : (1u << count) - 1;
    }
  }
  inline __attribute__((always_inline)) void load(const uint16_t* from, __m512 (&to)[V]) const {
#pragma GCC unroll 4
    for (int v = 0; v < V / 2; ++v) {
      const __m512i words = _mm512_maskz_loadu_epi16(masks[v], from + 32 * v);
      to[2 * v] = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
      to[2 * v + 1] =
          _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-0x10000)));
    }
  }
  inline __attribute__((always_inline)) void store(uint16_t* to, const __m512 (&values)[V]) const {
#pragma GCC unroll 4
    for (int v = 0; v < V / 2; ++v) {
      const __m512i even = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(values[2 * v]));
      const __m512i odd = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(values[2 * v + 1]));
      _mm512_mask_storeu_epi16(to + 32 * v, masks[v],
                               _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
  }
};

// Adds the made ranks to 16 V columns of R rows at a time.
template <class E, int R, int V>
void expand(const AdapterTask& task, typename E::Value* const (&out)[R], const float* made,
            Ahead ahead) {
  const int64_t width = task.part->width;
  const auto* up =
      static_cast<const typename E::Value*>(task.part->up) + task.first_rank * width;
  const int64_t turns = (width + 16 * V - 1) / (16 * V) * task.num_ranks;
  const int64_t lines = (ahead.end - ahead.at) / kLine / turns + 1;
  for (int64_t column = 0; column < width; column += 16 * V) {
    const Columns<E, V> columns(width - column);
    __m512 sums[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] = _mm512_setzero_ps();
    }
    for (int64_t rank = 0; rank < task.num_ranks; ++rank) {
      __m512 weights[V];
      ahead.some(lines);
      columns.load(up + rank * width + column, weights);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 value = _mm512_set1_ps(made[rank * R + r]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sums[r][v] = _mm512_fmadd_ps(weights[v], value, sums[r][v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      __m512 values[V];
      columns.load(out[r] + column, values);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) values[v] = _mm512_add_ps(values[v], sums[r][v]);
      columns.store(out[r] + column, values);
    }
  }
}

template <int R>
constexpr int kBeside = R <= 2 ? 8 : R <= 4 ? 4 : 2;

// A site's tasks one after the other, on one thread.
template <class E>
struct Site {
  using Value = typename E::Value;
  static constexpr int64_t kTogether = 8;  // tasks of one matrix, whose sums lie beside each other
  const Rows& all;
  int64_t in_width;

  static Ahead run_of(const AdapterTask& task, const void* matrix, int64_t rank_bytes) {
    const char* first = task.run_of(matrix, rank_bytes);
    return {first, first + task.num_ranks * rank_bytes};
  }
  Ahead down_of(const AdapterTask& task) const {
    return run_of(task, task.part->down, all.x_bytes);
  }
  Ahead up_of(const AdapterTask& task) const {
    return run_of(task, task.part->up, task.part->width * static_cast<int64_t>(sizeof(Value)));
  }

  template <int R>
  void shrink_task(const AdapterTask& task, float* made, Ahead ahead) const {
    const Word* x[R];
    for (int r = 0; r < R; ++r)
      x[r] = reinterpret_cast<const Word*>(all.x + task.rows[r] * all.x_bytes);
    shrink<E, R, kBeside<R>>(task, x, in_width / E::kPerWord, made, ahead);
  }
  template <int R>
  void expand_task(const AdapterTask& task, const float* made, Ahead ahead) const {
    Value* out[R];
    for (int r = 0; r < R; ++r)
      out[r] = reinterpret_cast<Value*>(all.out + task.rows[r] * all.out_bytes) +
               task.part->first_column;
    expand<E, R, kBeside<R>>(task, out, made, ahead);
  }

  // Runs of neighbours are one stream: those of all downs are read, then those of all ups. Sixteen
  // rows of eight adapters of rank 16, the matrices of SmolLM2, 2 threads: 2.2 ms, and 2.3 where each
  // up follows its down.
  void run(const AdapterTask* first, const AdapterTask* end, Ahead then) const {
    thread_local ScratchMemory memory;
    int64_t num_sums = 0;
    for (const AdapterTask* task = first; task < end; ++task) num_sums += task->num_sums();
    auto* sums = reinterpret_cast<float*>(memory.fit(num_sums * sizeof(float)));
    for (const AdapterTask* task = first; task < end; sums += task->num_sums(), ++task)
      with_count<AdapterTasks::kMostRows>(task->num_rows, [&](auto count) {
        shrink_task<decltype(count)::value>(*task, sums,
                                            task + 1 < end ? down_of(task[1]) : up_of(*first));
      });
    sums -= num_sums;
    for (const AdapterTask* task = first; task < end; sums += task->num_sums(), ++task)
      with_count<AdapterTasks::kMostRows>(task->num_rows, [&](auto count) {
        expand_task<decltype(count)::value>(*task, sums, task + 1 < end ? up_of(task[1]) : then);
      });
  }

  // In turns of tasks at one matrix.
  void run_share(const AdapterTask* first, const AdapterTask* end) const {
    for (const AdapterTask* stop = first; first < end; first = stop) {
      while (stop < end && stop < first + kTogether && stop->part == first->part) ++stop;
      run(first, stop, stop < end ? down_of(*stop) : Ahead{nullptr, nullptr});
    }
  }
};

template <class E>
void add(const Rows& all, int64_t in_width, AdapterTasks& listed, int num_threads) {
  const AdapterTask* tasks = listed.all().data();
  const auto& bounds = listed.shares(in_width, num_threads);
  const Site<E> site{all, in_width};
  parallel_for(static_cast<int64_t>(bounds.size()) - 1, num_threads, [&](int64_t share) {
    site.run_share(tasks + bounds[share], tasks + bounds[share + 1]);
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
  thread_local AdapterTasks listed;
  listed.list(slots, tokens, num_rows, {parts, num_parts, starts});
  const int64_t item = dtype == kFloat32 ? 4 : 2;
  const Rows all{static_cast<const char*>(x), in_width * item, static_cast<char*>(out),
                 out_width * item};
  (dtype == kFloat32 ? add<Float32> : add<BFloat16>)(all, in_width, listed, num_threads);
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
