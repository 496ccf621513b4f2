// Softmax of a row whose scores come in chunks (Milakov and Gimelshein, 2018), with a lazy maximum:
// what was summed is brought to a new maximum only when scores grew by more than 2^8 (as in
// FlashAttention 4). Weights up to 256 are as exact as weights up to 1, and most chunks are a
// comparison instead of a reduction and a rescaling. All depends on the row's own scores alone.
#pragma once

#include <limits>

#include "kv_rows.h"

namespace splitserve {

constexpr float kNothingSeen = -std::numeric_limits<float>::infinity();
constexpr float kSlack = 8.0f;  // of exponents of two

// 2^x for x < 128, not for infinities; a NaN stays a NaN. For weights in bfloat16 a cubic suffices:
// off by 7.5e-5 of the value, while rounding takes up to 2e-3.
template <class E>
inline __m512 weight_of(__m512 x) {
  if constexpr (E::kPerWord == 2) {
    const __m512 n = _mm512_roundscale_ps(x, 0), r = _mm512_sub_ps(x, n);
    __m512 sum = _mm512_set1_ps(5.517167e-2f);
    for (float coefficient : {0.24261114f, 0.69326099f, 0.99992807f})
      sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(coefficient));
    return _mm512_scalef_ps(sum, n);
  } else {
    return power_of_two(x);
  }
}

// One row's state within a segment.
struct RowSoftmax {
  alignas(64) float sum[16];  // by lane, added up when the segment ends
  float max;                  // that weights are relative to, in exponents of two
  float decay;                // what sums of values are multiplied by when a maximum has grown
};

// Which of a chunk's tokens a row sees: [first, end), within [0, 64].
struct Visible {
  int64_t first, end;
};

inline __mmask16 lanes_of(Visible visible, int64_t vector) {
  const auto upto = [&](int64_t count) {
    count -= 16 * vector;
    return count <= 0 ? __mmask16{0} : first_lanes(count);
  };
  return static_cast<__mmask16>(upto(visible.end) & ~upto(visible.first));
}

inline __m512 largest_of(const __m512* vectors, int count) {
  __m512 largest = vectors[0];
  for (int v = 1; v < count; ++v) largest = _mm512_max_ps(largest, vectors[v]);
  return largest;
}

// Brings the state of a row to a new maximum, where one of `top` is above the lazy one. It is a call,
// so that no compiler fuses its product with the sum that follows in one variant and not in another.
__attribute__((noinline)) inline void raise_maximum(__m512 top, RowSoftmax& row) {
  row.decay = 1.0f;
  if (!_mm512_cmp_ps_mask(top, _mm512_set1_ps(row.max + kSlack), _CMP_GT_OQ)) return;
  const float best = _mm512_reduce_max_ps(top);
  const __m512 decay = power_of_two(_mm512_set1_ps(row.max - best));
  row.decay = _mm512_cvtss_f32(decay);
  row.max = best;
  _mm512_store_ps(row.sum, _mm512_mul_ps(_mm512_load_ps(row.sum), decay));
}

// Scores of R rows for 16 V tokens -> weights in E's type, kChunk values apart from row to row.
// `value_scales`, where there are any, go into the weights. `Simple`: no scales, and all rows see all
// tokens. Returns whether earlier sums of the rows must be multiplied by their `decay`.
//
// A sum is that of vectors 0 and 1, plus that of 2 and 3: tokens that are not seen add zeros, so the
// bits do not depend on V.
template <class E, bool Simple, int R, int V>
inline __attribute__((always_inline)) bool soften(__m512 (&scores)[R][V], __m512 scale,
                                                  const float* key_scales,
                                                  const float* value_scales,
                                                  const Visible (&visible)[R], RowSoftmax* rows,
                                                  typename E::Value* weights) {
  if (!Simple && key_scales)
    for (auto& row : scores)
      for (int v = 0; v < V; ++v)
        row[v] = _mm512_mul_ps(row[v], _mm512_loadu_ps(key_scales + 16 * v));
  uint32_t grew = 0;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; !Simple && v < V; ++v)
      scores[r][v] =
          _mm512_mask_mov_ps(_mm512_set1_ps(kNothingSeen), lanes_of(visible[r], v), scores[r][v]);
    const __m512 top = _mm512_mul_ps(largest_of(scores[r], V), scale);
    grew |= _mm512_cmp_ps_mask(top, _mm512_set1_ps(rows[r].max + kSlack), _CMP_GT_OQ);
  }
  if (__builtin_expect(grew != 0, 0))
    for (int r = 0; r < R; ++r)
      raise_maximum(_mm512_mul_ps(largest_of(scores[r], V), scale), rows[r]);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m512 base = _mm512_set1_ps(rows[r].max == kNothingSeen ? 0.0f : rows[r].max);
    __m512 (&weight)[V] = scores[r];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      weight[v] = weight_of<E>(_mm512_fmsub_ps(scores[r][v], scale, base));
      if constexpr (!Simple) weight[v] = _mm512_maskz_mov_ps(lanes_of(visible[r], v), weight[v]);
    }
    __m512 sum = weight[0];
    if constexpr (V > 1) sum = _mm512_add_ps(sum, weight[1]);
    if constexpr (V == 3) sum = _mm512_add_ps(sum, weight[2]);
    if constexpr (V == 4) sum = _mm512_add_ps(sum, _mm512_add_ps(weight[2], weight[3]));
    _mm512_store_ps(rows[r].sum, _mm512_add_ps(_mm512_load_ps(rows[r].sum), sum));
    if (!Simple && value_scales)
      for (int v = 0; v < V; ++v)
        weight[v] = _mm512_mul_ps(weight[v], _mm512_loadu_ps(value_scales + 16 * v));
    E::template store_all<V>(weights + r * kChunk, weight);
  }
  return grew != 0;
}

}  // namespace splitserve
