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

// The first `count` of 32 bits.
inline uint32_t first_bits(int64_t count) { return count >= 32 ? ~0u : (1u << count) - 1; }

// The maximum of those of `count` values whose bits are set; NaN when one of them is.
float allowed_maximum(const float* from, const uint32_t* words, int64_t count) {
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 low_highest = lowest, high_highest = lowest;
  __mmask16 is_nan = 0;
  for (int64_t i = 0; i < count; i += 32) {
    const uint32_t word = words[i / 32] & first_bits(count - i);
    if (word == 0) continue;
    const __m512 low = _mm512_mask_loadu_ps(lowest, static_cast<__mmask16>(word), from + i);
    const __m512 high =
        _mm512_mask_loadu_ps(lowest, static_cast<__mmask16>(word >> 16), from + i + 16);
    is_nan |= _mm512_cmp_ps_mask(low, high, _CMP_UNORD_Q);
    low_highest = _mm512_max_ps(low_highest, low);
    high_highest = _mm512_max_ps(high_highest, high);
  }
  return is_nan ? std::numeric_limits<float>::quiet_NaN()
                : _mm512_reduce_max_ps(_mm512_max_ps(low_highest, high_highest));
}

// The first of `count` places whose bit is set and that holds `value`; 0 where none does.
int64_t first_allowed_place(const float* from, const uint32_t* words, int64_t count, float value) {
  const __m512 wanted = _mm512_set1_ps(value);
  for (int64_t i = 0; i < count; i += 16) {
    const auto allowed = static_cast<__mmask16>(words[i / 32] >> (i % 32));
    const __mmask16 lanes = first_lanes(count - i) & allowed;
    const __m512 some = _mm512_maskz_loadu_ps(lanes, from + i);
    const __mmask16 found = _mm512_mask_cmp_ps_mask(lanes, some, wanted, _CMP_EQ_OQ);
    if (found) return i + __builtin_ctz(found);
  }
  return 0;
}

void find_allowed(const float* row, const uint32_t* words, int64_t width, float* value,
                  int64_t* id) {
  float best = -std::numeric_limits<float>::infinity();
  int64_t best_start = 0;
  for (int64_t start = 0; start < width && best == best; start += kBlock) {
    const int64_t count = std::min(kBlock, width - start);
    const float found = allowed_maximum(row + start, words + start / 32, count);
    if (found > best || found != found) best = found, best_start = start;
  }
  const int64_t count = std::min(kBlock, width - best_start);
  *value = best;
  *id = best_start + first_allowed_place(row + best_start, words + best_start / 32, count, best);
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
