// The maximum of each row and where it is first; NaN where a row holds one. Of a row with a mask only
// the tokens count whose bits are set: bit i % 32 of word i / 32 is token i.
#include "element.h"
#include "parallel.h"

#include <algorithm>
#include <limits>

namespace splitserve {
namespace {

constexpr int64_t kBlock = 1024;  // columns: 4 KB, read a second time from the first-level cache

struct RowArgmax {
  const float* logits;
  int64_t row_stride, width;
  const int64_t* rows;
  const uint32_t* const* masks;  // of each row, or null; null: no row has one
  float* values;
  int64_t* ids;
};

// The maximum of `count` values; NaN when one of them is.
float block_maximum(const float* from, int64_t count) {
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 highest = lowest;
  __mmask16 is_nan = 0;
  for (int64_t i = 0; i < count; i += 16) {
    const __m512 value = _mm512_mask_loadu_ps(lowest, first_lanes(count - i), from + i);
    is_nan |= _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    highest = _mm512_max_ps(highest, value);
  }
  return is_nan ? std::numeric_limits<float>::quiet_NaN() : _mm512_reduce_max_ps(highest);
}

// The first of `count` places that holds `value`, or a NaN when that is one.
int64_t first_place(const float* from, int64_t count, float value) {
  const __m512 wanted = _mm512_set1_ps(value);
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = first_lanes(count - i);
    const __m512 some = _mm512_maskz_loadu_ps(lanes, from + i);
    const __mmask16 found = value != value
                                ? _mm512_mask_cmp_ps_mask(lanes, some, some, _CMP_UNORD_Q)
                                : _mm512_mask_cmp_ps_mask(lanes, some, wanted, _CMP_EQ_OQ);
    if (found) return i + __builtin_ctz(found);
  }
  return 0;
}

// The lanes of 16 columns from `start` that a mask lets count.
inline __mmask16 allowed_lanes(const uint32_t* words, int64_t start, int64_t width) {
  return first_lanes(width - start) & static_cast<__mmask16>(words[start / 32] >> (start % 32));
}

// Calls `see(lanes, start)` for every 16 columns of which some count, until it returns true.
template <class See>
inline void for_allowed(const uint32_t* words, int64_t width, const See& see) {
  for (int64_t i = 0; i < width; i += 16) {
    if (i % 32 == 0 && words[i / 32] == 0) {
      i += 16;
      continue;
    }
    const __mmask16 lanes = allowed_lanes(words, i, width);
    if (lanes && see(lanes, i)) return;
  }
}

void find_allowed(const float* row, const uint32_t* words, int64_t width, float* value,
                  int64_t* id) {
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 highest = lowest;
  __mmask16 is_nan = 0;
  for_allowed(words, width, [&](__mmask16 lanes, int64_t i) {
    const __m512 some = _mm512_mask_loadu_ps(lowest, lanes, row + i);
    is_nan |= _mm512_cmp_ps_mask(some, some, _CMP_UNORD_Q);
    highest = _mm512_max_ps(highest, some);
    return false;
  });
  *value = is_nan ? std::numeric_limits<float>::quiet_NaN() : _mm512_reduce_max_ps(highest);
  *id = 0;
  const __m512 wanted = _mm512_set1_ps(*value);
  for_allowed(words, width, [&](__mmask16 lanes, int64_t i) {
    const __m512 some = _mm512_maskz_loadu_ps(lanes, row + i);
    const __mmask16 found = _mm512_mask_cmp_ps_mask(lanes, some, wanted, _CMP_EQ_OQ);
    if (found) *id = i + __builtin_ctz(found);
    return found != 0;
  });
}

void find(const RowArgmax& job, int64_t index) {
  const float* row = job.logits + job.rows[index] * job.row_stride;
  if (job.masks != nullptr && job.masks[index] != nullptr) {
    find_allowed(row, job.masks[index], job.width, job.values + index, job.ids + index);
    return;
  }
  float best = block_maximum(row, std::min(kBlock, job.width));
  int64_t best_start = 0;
  for (int64_t start = kBlock; start < job.width && best == best; start += kBlock) {
    const float value = block_maximum(row + start, std::min(kBlock, job.width - start));
    if (value > best || value != value) best = value, best_start = start;
  }
  const int64_t count = std::min(kBlock, job.width - best_start);
  job.values[index] = best;
  job.ids[index] = best_start + first_place(row + best_start, count, best);
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_row_argmax(const float* logits, int64_t row_stride, int64_t width,
                                      const int64_t* rows, int64_t num_rows,
                                      const uint32_t* const* masks, float* values, int64_t* ids,
                                      int32_t num_threads) {
  using namespace splitserve;
  const RowArgmax job{logits, row_stride, width, rows, masks, values, ids};
  parallel_for(num_rows, num_threads, [&](int64_t index) { find(job, index); });
}
