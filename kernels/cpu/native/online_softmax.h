// Softmax of a row whose scores come in chunks (Milakov and Gimelshein, 2018), with a lazy maximum:
// what was summed is brought to a new maximum only when scores grew by more than 2^8 (as in
// FlashAttention 4). Weights up to 256 are as exact as weights up to 1, and most chunks are a
// comparison instead of a reduction and a rescaling. All depends on the row's own scores alone.
#pragma once

#include <limits>

#include "element.h"

namespace splitserve {

constexpr float kNothingSeen = -std::numeric_limits<float>::infinity();
constexpr float kSlack = 8.0f;  // of exponents of two

// 2^x for x < 128; a NaN stays a NaN; below 2^-125 a tiny number. The integer part goes to the exponent
// by integer addition. For weights in bfloat16 a cubic suffices: off by 7.5e-5 of the value, while
// rounding takes up to 2e-3.
template <class E>
inline __m512 weight_of(__m512 x) {
  const __m512 magic = _mm512_set1_ps(12582912.0f);  // 1.5 * 2^23: its last bits count integers
  x = _mm512_max_ps(_mm512_set1_ps(-125.0f), x);
  const __m512 shifted = _mm512_add_ps(x, magic);
  const __m512 r = _mm512_sub_ps(x, _mm512_sub_ps(shifted, magic));
  __m512 sum;
  if constexpr (E::kPerWord == 2) {
    sum = _mm512_set1_ps(5.517167e-2f);
    for (float coefficient : {0.24261114f, 0.69326099f, 0.99992807f})
      sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(coefficient));
  } else {
    sum = _mm512_set1_ps(1.5403530e-4f);
    for (float coefficient :
         {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 0.24022651f, 0.69314718f, 1.0f})
      sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(coefficient));
  }
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(sum), exponent));
}

// One row's state within a segment.
struct RowSoftmax {
  alignas(64) float sum[16];  // by lane, added up when the segment ends
  float max;                  // that weights are relative to, in exponents of two
  float decay;                // what earlier sums are multiplied by in the present chunk
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

// Scores of one row -> weights in E's type; `value_scales`, where there are any, go into the weights.
// Returns whether earlier sums must be multiplied by `row.decay`. Products that are added to are
// fused by hand, so that no compiler fuses them in one variant and not in another.
template <class E, int V>
inline __attribute__((always_inline)) bool soften(__m512 (&scores)[V], __m512 scale,
                                                  const float* key_scales,
                                                  const float* value_scales, Visible visible,
                                                  RowSoftmax& row, typename E::Value* weights) {
  const bool whole = visible.first <= 0 && visible.end >= 16 * V;
  __m512 top = _mm512_set1_ps(kNothingSeen);
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    if (key_scales) scores[v] = _mm512_mul_ps(scores[v], _mm512_loadu_ps(key_scales + 16 * v));
    if (!whole)
      scores[v] = _mm512_mask_mov_ps(_mm512_set1_ps(kNothingSeen), lanes_of(visible, v), scores[v]);
    top = _mm512_max_ps(top, scores[v]);
  }
  top = _mm512_mul_ps(top, scale);
  const bool grew = _mm512_cmp_ps_mask(top, _mm512_set1_ps(row.max + kSlack), _CMP_GT_OQ) != 0;
  row.decay = 1.0f;
  if (grew) {
    const float best = _mm512_reduce_max_ps(top);
    row.decay = _mm512_cvtss_f32(weight_of<E>(_mm512_set1_ps(row.max - best)));
    row.max = best;
  }
  const __m512 base = _mm512_set1_ps(row.max == kNothingSeen ? 0.0f : row.max);
  const __m512 earlier = _mm512_load_ps(row.sum);
  __m512 sum;
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    __m512 weight = weight_of<E>(_mm512_fmsub_ps(scores[v], scale, base));
    if (!whole) weight = _mm512_maskz_mov_ps(lanes_of(visible, v), weight);
    sum = v == 0 ? _mm512_fmadd_ps(earlier, _mm512_set1_ps(row.decay), weight)
                 : _mm512_add_ps(sum, weight);
    if (value_scales) weight = _mm512_mul_ps(weight, _mm512_loadu_ps(value_scales + 16 * v));
    E::store(weights + 16 * v, weight);
  }
  _mm512_store_ps(row.sum, sum);
  return grew;
}

}  // namespace splitserve
