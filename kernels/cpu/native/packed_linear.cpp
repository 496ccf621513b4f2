// out = x * weight^T + bias, the weight in panels of 32 outputs: [n / 32][num_steps][32] words.
#include <type_traits>

#include "operations.h"
#include "parallel.h"
#include "tile.h"

namespace splitserve {
namespace {

constexpr int64_t kRowBlock = 192;  // rows of x that stay in the second-level cache

struct Linear {
  const Word* x;
  int64_t num_rows, num_steps, x_stride;
  const Word* panels;
  int64_t num_outputs;
  const float* bias;  // [num_outputs] or null
  void* out;
  int64_t out_stride;
};

template <class E, class Out>
void store_half(const Linear& job, int64_t row, int64_t column, __m512 sum) {
  const __mmask16 mask = first_lanes(job.num_outputs - column);
  if (job.bias) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, job.bias + column));
  auto* to = static_cast<typename Out::Value*>(job.out) + row * job.out_stride + column;
  Out::store_some(to, sum, mask);
}

template <class E, class Out, int R>
void linear_tile(const Linear& job, int64_t row, int64_t panel) {
  __m512 sums[R][2];
  for (auto& pair : sums) pair[0] = pair[1] = _mm512_setzero_ps();
  multiply_tile<E, R>(job.x + row * job.x_stride, job.x_stride,
                      job.panels + panel * job.num_steps * kPanel, job.num_steps, sums);
  for (int r = 0; r < R; ++r) {
    const int64_t column = panel * kPanel;
    store_half<E, Out>(job, row + r, column, sums[r][0]);
    if (column + 16 < job.num_outputs) store_half<E, Out>(job, row + r, column + 16, sums[r][1]);
  }
}

template <class E, class Out>
void linear(const Linear& job, int num_threads) {
  const int64_t num_panels = (job.num_outputs + kPanel - 1) / kPanel;
  const int64_t num_blocks = (job.num_rows + kRowBlock - 1) / kRowBlock;
  const auto multiply_panel = [&](int64_t index) {
    const int64_t block = index / num_panels, panel = index % num_panels;
    const int64_t first = job.num_rows * block / num_blocks;
    const int64_t end = job.num_rows * (block + 1) / num_blocks;
    for_row_parts(end - first, [&](int64_t offset, int count) {
      with_row_count(count, [&](auto rows) {
        linear_tile<E, Out, rows()>(job, first + offset, panel);
      });
    });
  };
  parallel_for(num_blocks * num_panels, num_threads, multiply_panel, Claim::kInRuns);
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_linear(int32_t dtype, int32_t out_dtype, const void* x, int64_t num_rows,
                                  int64_t num_steps, int64_t x_stride_words, const void* panels,
                                  int64_t num_outputs, const float* bias, void* out,
                                  int64_t out_stride, int32_t num_threads) {
  using namespace splitserve;
  const Linear job{static_cast<const Word*>(x),      num_rows,    num_steps, x_stride_words,
                   static_cast<const Word*>(panels), num_outputs, bias,      out,
                   out_stride};
  if (dtype == kFloat32)
    linear<Float32, Float32>(job, num_threads);
  else if (out_dtype == kFloat32)
    linear<BFloat16, Float32>(job, num_threads);
  else
    linear<BFloat16, BFloat16>(job, num_threads);
}
