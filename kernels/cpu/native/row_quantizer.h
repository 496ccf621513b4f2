// Rounding of activations to bytes, sixteen spans at a time; see quantized_rows.h.
#pragma once

#include <vector>

#include "quantized_rows.h"

namespace splitserve {

constexpr float kFineSteps = 254.0f;  // the second term's bytes reach over one step of the first's

inline uint16_t narrow(float value) {
  return static_cast<uint16_t>(
      _mm_extract_epi16((__m128i)_mm_cvtneps_pbh(_mm_set_ss(value)), 0));
}

// Lane i of the result: all lanes of vectors[i], brought together by `join`. `vectors` is used up.
template <class Join>
inline __m512i join_lanes(__m512i (&vectors)[16], Join join) {
  for (int i = 0; i < 8; ++i)
    vectors[i] = join(_mm512_unpacklo_epi32(vectors[2 * i], vectors[2 * i + 1]),
                      _mm512_unpackhi_epi32(vectors[2 * i], vectors[2 * i + 1]));
  for (int i = 0; i < 4; ++i)
    vectors[i] = join(_mm512_unpacklo_epi64(vectors[2 * i], vectors[2 * i + 1]),
                      _mm512_unpackhi_epi64(vectors[2 * i], vectors[2 * i + 1]));
  for (int count = 2; count >= 1; --count)
    for (int i = 0; i < count; ++i)
      vectors[i] = join(_mm512_shuffle_i32x4(vectors[2 * i], vectors[2 * i + 1], 0x88),
                        _mm512_shuffle_i32x4(vectors[2 * i], vectors[2 * i + 1], 0xdd));
  return vectors[0];
}

// Magnitudes in the order of their bits, where a NaN is above all others.
inline __m512i magnitude(__m512 values) { return _mm512_castps_si512(_mm512_abs_ps(values)); }

inline __m512 inverse_step(__m512 largest) {
  const __mmask16 has_scale = _mm512_cmp_ps_mask(largest, _mm512_set1_ps(1e-30f), _CMP_GT_OQ);
  return _mm512_maskz_div_ps(has_scale, _mm512_set1_ps(127.0f), largest);
}

// Rounds 32 values to bytes; the sums of two of them in each lane.
inline __m512i round_to_bytes(__m512 left, __m512 right, int8_t* values) {
  const __m512i first = _mm512_cvtps_epi32(left), second = _mm512_cvtps_epi32(right);
  auto* to = reinterpret_cast<__m128i*>(values);
  _mm_storeu_si128(to, _mm512_cvtsepi32_epi8(first));
  _mm_storeu_si128(to + 1, _mm512_cvtsepi32_epi8(second));
  return _mm512_add_epi32(first, second);
}

inline __m512 widen_bytes(const int8_t* values) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values))));
}

// Rounds rows of one matrix, on one thread; keeps what it needs for a row.
class RowQuantizer {
 public:
  RowQuantizer(const GroupedMatrix& matrix, const QuantizedRows& rows)
      : matrix_(matrix), rows_(rows), padded_((matrix.num_spans() + 15) / 16 * 16),
        inverses_(padded_), totals_(padded_), keys_(padded_) {}

  template <class E>
  void quantize(const typename E::Value* x, char* row) {
    scale_sums_ = _mm512_setzero_ps();
    for (int64_t span = 0; span < matrix_.num_spans(); span += 16) quantize_spans<E>(x, row, span);
    const float mean = _mm512_reduce_add_ps(scale_sums_) / static_cast<float>(matrix_.num_spans());
    *rows_.fine_count(row) = keep_rests<E>(x, row, rows_.least_scale(mean));
    if (matrix_.minimums) add_up(row);
  }

 private:
  static constexpr int32_t kIndexMask = (1 << 12) - 1;

  // Sixteen spans, or those that are left.
  template <class E>
  void quantize_spans(const typename E::Value* x, char* row, int64_t first) {
    const int count = static_cast<int>(std::min<int64_t>(16, matrix_.num_spans() - first));
    const __mmask16 mask = first_lanes(count);
    x += first * kSpan;
    __m512i lanes[16] = {};
    for (int i = 0; i < count; ++i)
      lanes[i] = _mm512_max_epi32(magnitude(E::load(x + i * kSpan)),
                                  magnitude(E::load(x + i * kSpan + 16)));
    const __m512 largest = _mm512_castsi512_ps(
        join_lanes(lanes, [](__m512i a, __m512i b) { return _mm512_max_epi32(a, b); }));
    const __m512 scales = _mm512_div_ps(largest, _mm512_set1_ps(127.0f));
    _mm512_mask_storeu_ps(rows_.scales(row) + first, mask, scales);
    scale_sums_ = _mm512_add_ps(scale_sums_, scales);
    _mm512_storeu_ps(&inverses_[first], inverse_step(largest));
    _mm512_storeu_si512(&keys_[first], keys(scales, first, mask));
    for (int i = 0; i < 16; ++i) lanes[i] = _mm512_setzero_si512();
    for (int i = 0; i < count; ++i) {
      const __m512 inverse = _mm512_set1_ps(inverses_[first + i]);
      lanes[i] = round_to_bytes(_mm512_mul_ps(E::load(x + i * kSpan), inverse),
                                _mm512_mul_ps(E::load(x + i * kSpan + 16), inverse),
                                rows_.values(row) + (first + i) * kSpan);
    }
    const __m512i sums =
        join_lanes(lanes, [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); });
    _mm512_mask_storeu_epi32(rows_.offsets(row) + first, mask,
                             matrix_.is_paired ? PairScales::first(sums, matrix_.centre())
                                               : FloatScales::first(sums, matrix_.centre()));
    _mm512_storeu_ps(&totals_[first], _mm512_mul_ps(scales, _mm512_cvtepi32_ps(sums)));
  }

  // Spans in the order of the leading bits of their scales, the first of equal ones first.
  static __m512i keys(__m512 scales, int64_t first, __mmask16 mask) {
    const __m512i places = _mm512_sub_epi32(
        _mm512_set1_epi32(kIndexMask - static_cast<int32_t>(first)),
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i leading =
        _mm512_and_si512(magnitude(scales), _mm512_set1_epi32(~kIndexMask));
    return _mm512_mask_or_epi32(_mm512_set1_epi32(-1), mask, leading, places);
  }

  int32_t largest_below(int32_t limit) const {
    __m512i largest = _mm512_set1_epi32(-1);
    for (int64_t i = 0; i < padded_; i += 16) {
      const __m512i some = _mm512_loadu_si512(&keys_[i]);
      const __mmask16 below = _mm512_cmplt_epi32_mask(some, _mm512_set1_epi32(limit));
      largest = _mm512_mask_max_epi32(largest, below, largest, some);
    }
    return _mm512_reduce_max_epi32(largest);
  }

  // Returns of how many spans.
  template <class E>
  int32_t keep_rests(const typename E::Value* x, char* row, float least_scale) {
    int32_t count = 0;
    for (int32_t key = INT32_MAX; count < rows_.most_fine(); ++count) {
      key = largest_below(key);
      const int32_t span = kIndexMask - (key & kIndexMask);
      if (!(rows_.scales(row)[span] >= least_scale)) break;
      keep_rest<E>(x, row, count, span);
    }
    return count;
  }

  // What the bytes of a span miss, as bytes too.
  template <class E>
  void keep_rest(const typename E::Value* x, char* row, int64_t index, int32_t span) {
    const int8_t* values = rows_.values(row) + span * kSpan;
    const __m512 inverse = _mm512_set1_ps(inverses_[span]), steps = _mm512_set1_ps(kFineSteps);
    x += span * kSpan;
    const __m512 left = _mm512_fmsub_ps(E::load(x), inverse, widen_bytes(values));
    const __m512 right = _mm512_fmsub_ps(E::load(x + 16), inverse, widen_bytes(values + 16));
    const int32_t sum = _mm512_reduce_add_epi32(
        round_to_bytes(_mm512_mul_ps(left, steps), _mm512_mul_ps(right, steps),
                       rows_.fine_values(row) + index * kSpan));
    const float scale = rows_.scales(row)[span] / kFineSteps;
    rows_.fine_places(row)[index] = place(span);
    rows_.fine_scales(row)[index] = scale;
    rows_.fine_offsets(row)[index] = matrix_.is_paired ? PairScales::first(sum, matrix_.centre())
                                                       : FloatScales::first(sum, matrix_.centre());
    totals_[span] += scale * static_cast<float>(sum);
  }

  Place place(int32_t span) const {
    const int32_t spans_per_group = static_cast<int32_t>(matrix_.group / kSpan);
    const int32_t step_bytes = static_cast<int32_t>(matrix_.step_bytes());
    const int32_t scales = span / spans_per_group * static_cast<int32_t>(matrix_.group_bytes());
    const int32_t values = scales + static_cast<int32_t>(matrix_.scale_bytes());
    return {scales, values + span % spans_per_group * kSpanSteps * step_bytes};
  }

  void add_up(char* row) const {
    const int64_t spans_per_group = matrix_.group / kSpan, num_groups = matrix_.num_groups();
    for (int64_t group = 0; group < num_groups; ++group) {
      float sum = 0.0f;
      for (int64_t i = 0; i < spans_per_group; ++i) sum += totals_[group * spans_per_group + i];
      rows_.sums(row)[group] = narrow(sum);
    }
    if (num_groups % 2) rows_.sums(row)[num_groups] = 0;
  }

  const GroupedMatrix& matrix_;
  const QuantizedRows& rows_;
  int64_t padded_;  // spans, and room for whole vectors
  std::vector<float> inverses_, totals_;  // 1 / scale; sum of a span's values, as rounded
  std::vector<int32_t> keys_;
  __m512 scale_sums_;
};

}  // namespace splitserve
