// AVX-512's vectors as two of AVX2's, under the names that immintrin.h has for them: in this namespace
// these are meant. A function does what the instruction of its name does, lane by lane, with the same
// roundings; where one leaves something out, it says so.
//
// Here are the vectors and what floats do; halves_of_lanes.h has masks and memory, and what
// moves lanes, halves_of_integers.h 32- and 64-bit integers, halves_of_bytes.h smaller types.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <limits>

namespace splitserve {

struct __m512 {
  __m256 low, high;
};

struct __m512i {
  __m256i low, high;
};

// Thirty-two values of bfloat16.
struct __m512bh {
  __m512i words;
  explicit __m512bh(__m512i some) : words(some) {}
  operator __m512i() const { return words; }
};

inline __m512 _mm512_castsi512_ps(__m512i a) {
  return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}
inline __m512i _mm512_castps_si512(__m512 a) {
  return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
}

inline __m512 _mm512_set1_ps(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline __m512 _mm512_setzero_ps() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline __m512 _mm512_broadcastss_ps(__m128 a) {
  return {_mm256_broadcastss_ps(a), _mm256_broadcastss_ps(a)};
}
inline float _mm512_cvtss_f32(__m512 a) { return _mm256_cvtss_f32(a.low); }
inline __m128 _mm512_castps512_ps128(__m512 a) { return _mm256_castps256_ps128(a.low); }
inline __m256 _mm512_castps512_ps256(__m512 a) { return a.low; }

#define SPLITSERVE_HALVES_1(name, half)  \
  inline __m512 name(__m512 a) { return {half(a.low), half(a.high)}; }
#define SPLITSERVE_HALVES_2(name, half) \
  inline __m512 name(__m512 a, __m512 b) { return {half(a.low, b.low), half(a.high, b.high)}; }
#define SPLITSERVE_HALVES_3(name, half)                 \
  inline __m512 name(__m512 a, __m512 b, __m512 c) {    \
    return {half(a.low, b.low, c.low), half(a.high, b.high, c.high)}; \
  }
SPLITSERVE_HALVES_1(_mm512_movehdup_ps, _mm256_movehdup_ps)
SPLITSERVE_HALVES_2(_mm512_add_ps, _mm256_add_ps)
SPLITSERVE_HALVES_2(_mm512_sub_ps, _mm256_sub_ps)
SPLITSERVE_HALVES_2(_mm512_mul_ps, _mm256_mul_ps)
SPLITSERVE_HALVES_2(_mm512_div_ps, _mm256_div_ps)
SPLITSERVE_HALVES_2(_mm512_max_ps, _mm256_max_ps)
SPLITSERVE_HALVES_2(_mm512_min_ps, _mm256_min_ps)
SPLITSERVE_HALVES_3(_mm512_fmadd_ps, _mm256_fmadd_ps)
SPLITSERVE_HALVES_3(_mm512_fmsub_ps, _mm256_fmsub_ps)
SPLITSERVE_HALVES_3(_mm512_fnmadd_ps, _mm256_fnmadd_ps)
#undef SPLITSERVE_HALVES_1
#undef SPLITSERVE_HALVES_2
#undef SPLITSERVE_HALVES_3

inline __m512 _mm512_abs_ps(__m512 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}

inline __m256 nearest(__m256 a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#undef _mm512_roundscale_ps
// To the nearest integer: with no other `steps` than 0.
inline __m512 _mm512_roundscale_ps(__m512 a, int steps) {
  static_cast<void>(steps);
  return {nearest(a.low), nearest(a.high)};
}

// a * 2^n for an integer n. In two steps, of which the first is exact, as a power of two may lie
// beyond what a float holds where the product does not. Where n is an infinity, infinity or 0,
// whatever a is: the sum of a series at infinity - infinity is no number.
inline __m256 scale(__m256 a, __m256 power) {
  const __m256 infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  const __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), power);
  const __m256 is_endless = _mm256_cmp_ps(size, infinity, _CMP_EQ_OQ);
  const __m256 n = _mm256_min_ps(_mm256_set1_ps(254.0f),
                                 _mm256_max_ps(_mm256_set1_ps(-252.0f), power));
  const __m256i bias = _mm256_set1_epi32(127), whole = _mm256_cvtps_epi32(n);
  const __m256i first = _mm256_srai_epi32(whole, 1), second = _mm256_sub_epi32(whole, first);
  const __m256i left = _mm256_slli_epi32(_mm256_add_epi32(first, bias), 23);
  const __m256i right = _mm256_slli_epi32(_mm256_add_epi32(second, bias), 23);
  const __m256 near = _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(left)),
                                    _mm256_castsi256_ps(right));
  return _mm256_blendv_ps(near, _mm256_max_ps(power, _mm256_setzero_ps()), is_endless);
}

inline __m512 _mm512_scalef_ps(__m512 a, __m512 n) {
  return {scale(a.low, n.low), scale(a.high, n.high)};
}

// In the order in which compilers add the lanes of a whole vector.
inline float _mm512_reduce_add_ps(__m512 a) {
  const __m256 half = _mm256_add_ps(a.low, a.high);
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

inline float _mm512_reduce_max_ps(__m512 a) {
  const __m256 half = _mm256_max_ps(a.low, a.high);
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}

}  // namespace splitserve
