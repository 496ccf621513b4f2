// out[:, h] = x[:, h] * weight[h]^T for every head, each head's weight in panels of 32 outputs:
// [num_heads][num_outputs / 32][num_steps][32] words. Rows and heads of x and out have strides of
// their own, so that slices of wider rows need no copy.
#include "parallel.h"
#include "tile.h"

namespace splitserve {
namespace {

constexpr int64_t kRowBlock = 192;  // rows of x that stay in the second-level cache

struct HeadLinear {
  const Word* x;
  int64_t x_row_stride, x_head_stride;  // words
  int64_t num_rows, num_heads, num_steps;
  const Word* panels;
  int64_t num_outputs;
  void* out;
  int64_t out_row_stride, out_head_stride;  // values
};

template <class E, int R>
void head_tile(const HeadLinear& job, int64_t head, int64_t row, int64_t panel,
               int64_t num_panels) {
  __m512 sums[R][2];
  for (auto& pair : sums) pair[0] = pair[1] = _mm512_setzero_ps();
  multiply_tile<E, R>(job.x + head * job.x_head_stride + row * job.x_row_stride, job.x_row_stride,
                      job.panels + (head * num_panels + panel) * job.num_steps * kPanel,
                      job.num_steps, sums);
  const int64_t column = panel * kPanel, left = job.num_outputs - column;
  for (int r = 0; r < R; ++r) {
    auto* to = static_cast<typename E::Value*>(job.out) + head * job.out_head_stride +
               (row + r) * job.out_row_stride + column;
    E::store_some(to, sums[r][0], first_lanes(left));
    if (left > 16) E::store_some(to + 16, sums[r][1], first_lanes(left - 16));
  }
}

template <class E>
void head_linear(const HeadLinear& job, int num_threads) {
  const int64_t num_panels = (job.num_outputs + kPanel - 1) / kPanel;
  const int64_t num_blocks = (job.num_rows + kRowBlock - 1) / kRowBlock;
  parallel_for(job.num_heads * num_blocks * num_panels, num_threads, [&](int64_t index) {
    const int64_t panel = index % num_panels, block = index / num_panels % num_blocks;
    const int64_t head = index / (num_panels * num_blocks);
    const int64_t first = job.num_rows * block / num_blocks;
    const int64_t end = job.num_rows * (block + 1) / num_blocks;
    for_row_parts(end - first, [&](int64_t offset, int count) {
      with_row_count(count, [&](auto rows) {
        head_tile<E, rows()>(job, head, first + offset, panel, num_panels);
      });
    });
  });
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_head_linear(int32_t dtype, const void* x, int64_t x_row_stride_words,
                                       int64_t x_head_stride_words, int64_t num_rows,
                                       int64_t num_heads, int64_t num_steps, const void* panels,
                                       int64_t num_outputs, void* out, int64_t out_row_stride,
                                       int64_t out_head_stride, int32_t num_threads) {
  using namespace splitserve;
  const HeadLinear job{static_cast<const Word*>(x),
                       x_row_stride_words,
                       x_head_stride_words,
                       num_rows,
                       num_heads,
                       num_steps,
                       static_cast<const Word*>(panels),
                       num_outputs,
                       out,
                       out_row_stride,
                       out_head_stride};
  dtype == kFloat32 ? head_linear<Float32>(job, num_threads)
                    : head_linear<BFloat16>(job, num_threads);
}
