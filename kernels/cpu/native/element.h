// The two element types, bfloat16 and float32, seen as 32-bit words: a word holds two bfloat16
// values or one float. Everything above works on words and never asks which it is.
#pragma once

#include "vectors.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace splitserve {

using Word = int32_t;

enum Dtype : int32_t { kFloat32 = 0, kBFloat16 = 1 };

struct Float32 {
  static constexpr int kPerWord = 1;
  using Value = float;
  static __m512 multiply_add(__m512 sum, __m512i a, __m512i b) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum);
  }
  static __m512 load(const Value* from) { return _mm512_loadu_ps(from); }
  template <int V>
  static void store_all(Value* to, const __m512 (&values)[V]) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(to + 16 * v, values[v]);
  }
  static __m512 load_some(const Value* from, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, from);
  }
  static void store_some(Value* to, __m512 values, __mmask16 mask) {
    _mm512_mask_storeu_ps(to, mask, values);
  }
};

struct BFloat16 {
  static constexpr int kPerWord = 2;
  using Value = uint16_t;
  static __m512 multiply_add(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  static __m512 widen(__m256i values) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
  }
  static __m512 load(const Value* from) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  template <int V>
  static void store_all(Value* to, const __m512 (&values)[V]) {
#pragma GCC unroll 4
    for (int v = 0; v + 1 < V; v += 2) {
      const __m512bh both = _mm512_cvtne2ps_pbh(values[v + 1], values[v]);
      _mm512_storeu_si512(to + 16 * v, (__m512i)both);
    }
    if constexpr (V % 2 == 1) store_some(to + 16 * (V - 1), values[V - 1], 0xffff);
  }
  static __m512 load_some(const Value* from, __mmask16 mask) {
    return widen(_mm256_maskz_loadu_epi16(mask, from));
  }
  static void store_some(Value* to, __m512 values, __mmask16 mask) {
    _mm256_mask_storeu_epi16(to, mask, (__m256i)_mm512_cvtneps_pbh(values));
  }
};

// The first `count` of 16 lanes.
inline __mmask16 first_lanes(int64_t count) {
  return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << count) - 1);
}

// 2^x to a few units in the last place; 0 for -inf; a NaN stays a NaN. x = n + r, |r| <= 1/2, and
// the Taylor series of 2^r to r^6.
inline __m512 power_of_two(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-160.0f), x);
  const __m512 n = _mm512_roundscale_ps(x, 0);
  const __m512 r = _mm512_sub_ps(x, n);
  __m512 sum = _mm512_set1_ps(1.5403530e-4f);
  for (float coefficient :
       {1.3333558e-3f, 9.6181291e-3f, 5.5504109e-2f, 0.24022651f, 0.69314718f, 1.0f})
    sum = _mm512_fmadd_ps(sum, r, _mm512_set1_ps(coefficient));
  return _mm512_scalef_ps(sum, n);
}

inline __m512 exponential(__m512 x) {
  return power_of_two(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)));
}

}  // namespace splitserve
