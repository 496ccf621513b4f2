// Rows of logits of which only some tokens may come: bit i % 32 of a mask's word i / 32 is token i.
#include "element.h"
#include "parallel.h"

#include <limits>

namespace splitserve {
namespace {

struct MaskedRows {
  float* logits;
  int64_t row_stride, width;
  const int64_t* rows;
  const uint32_t* const* masks;
};

void mask_row(float* row, const uint32_t* words, int64_t width) {
  const __m512 never = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < width; i += 32) {
    const uint32_t banned = ~words[i / 32];
    if (banned == 0) continue;
    const int64_t left = width - i;
    _mm512_mask_storeu_ps(row + i, first_lanes(left) & static_cast<__mmask16>(banned), never);
    if (left > 16)
      _mm512_mask_storeu_ps(row + i + 16,
                            first_lanes(left - 16) & static_cast<__mmask16>(banned >> 16), never);
  }
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_mask_logits(float* logits, int64_t row_stride, int64_t width,
                                       const int64_t* rows, int64_t num_rows,
                                       const uint32_t* const* masks, int32_t num_threads) {
  using namespace splitserve;
  const MaskedRows job{logits, row_stride, width, rows, masks};
  parallel_for(num_rows, num_threads, [&](int64_t index) {
    mask_row(job.logits + job.rows[index] * job.row_stride, job.masks[index], job.width);
  });
}
