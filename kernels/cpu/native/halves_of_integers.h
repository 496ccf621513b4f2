// Integers of 32 and 64 bits; see halves.h.
#pragma once

#include "halves_of_lanes.h"

namespace splitserve {

inline __m512i _mm512_set1_epi32(int32_t value) {
  return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
}
inline __m512i _mm512_setzero_si512() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
#undef _mm512_setr_epi32
inline __m512i _mm512_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int i,
                                 int j, int k, int l, int m, int n, int o, int p) {
  return {_mm256_setr_epi32(a, b, c, d, e, f, g, h), _mm256_setr_epi32(i, j, k, l, m, n, o, p)};
}
inline __m256i _mm512_castsi512_si256(__m512i a) { return a.low; }

#define SPLITSERVE_HALVES_2(name, half) \
  inline __m512i name(__m512i a, __m512i b) { return {half(a.low, b.low), half(a.high, b.high)}; }
SPLITSERVE_HALVES_2(_mm512_add_epi32, _mm256_add_epi32)
SPLITSERVE_HALVES_2(_mm512_sub_epi32, _mm256_sub_epi32)
SPLITSERVE_HALVES_2(_mm512_mullo_epi32, _mm256_mullo_epi32)
SPLITSERVE_HALVES_2(_mm512_max_epi32, _mm256_max_epi32)
SPLITSERVE_HALVES_2(_mm512_and_si512, _mm256_and_si256)
SPLITSERVE_HALVES_2(_mm512_or_si512, _mm256_or_si256)
SPLITSERVE_HALVES_2(_mm512_xor_si512, _mm256_xor_si256)
SPLITSERVE_HALVES_2(_mm512_add_epi64, _mm256_add_epi64)
SPLITSERVE_HALVES_2(_mm512_mul_epu32, _mm256_mul_epu32)
SPLITSERVE_HALVES_2(_mm512_madd_epi16, _mm256_madd_epi16)
SPLITSERVE_HALVES_2(_mm512_unpacklo_epi32, _mm256_unpacklo_epi32)
SPLITSERVE_HALVES_2(_mm512_unpackhi_epi32, _mm256_unpackhi_epi32)
SPLITSERVE_HALVES_2(_mm512_unpacklo_epi64, _mm256_unpacklo_epi64)
SPLITSERVE_HALVES_2(_mm512_unpackhi_epi64, _mm256_unpackhi_epi64)
#undef SPLITSERVE_HALVES_2

inline __m512i _mm512_slli_epi32(__m512i a, int bits) {
  return {_mm256_slli_epi32(a.low, bits), _mm256_slli_epi32(a.high, bits)};
}
inline __m512i _mm512_srli_epi32(__m512i a, int bits) {
  return {_mm256_srli_epi32(a.low, bits), _mm256_srli_epi32(a.high, bits)};
}
inline __m512i _mm512_srli_epi16(__m512i a, int bits) {
  return {_mm256_srli_epi16(a.low, bits), _mm256_srli_epi16(a.high, bits)};
}

inline __m512i _mm512_cvtps_epi32(__m512 a) {
  return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
inline __m512 _mm512_cvtepi32_ps(__m512i a) {
  return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}

// Four floats, from 0 to 2^52: what comes behind the point is left out, and the rest lies in the low
// bits of a double that 2^52 was added to.
inline __m256i whole_part(__m128 a) {
  const __m256d whole =
      _mm256_round_pd(_mm256_cvtps_pd(a), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  const __m256d shift = _mm256_set1_pd(4503599627370496.0);
  return _mm256_xor_si256(_mm256_castpd_si256(_mm256_add_pd(whole, shift)),
                          _mm256_castpd_si256(shift));
}

// Of floats from 0 to 2^52 only.
inline __m512i _mm512_cvttps_epi64(__m256 a) {
  return {whole_part(_mm256_castps256_ps128(a)), whole_part(_mm256_extractf128_ps(a, 1))};
}

#undef _mm512_cmplt_epi32_mask
inline __mmask16 _mm512_cmplt_epi32_mask(__m512i a, __m512i b) {
  return mask_of(_mm256_cmpgt_epi32(b.low, a.low), _mm256_cmpgt_epi32(b.high, a.high));
}

inline __m512i _mm512_mask_or_epi32(__m512i otherwise, __mmask16 mask, __m512i a, __m512i b) {
  return _mm512_mask_mov_epi32(otherwise, mask, _mm512_or_si512(a, b));
}
inline __m512i _mm512_mask_max_epi32(__m512i otherwise, __mmask16 mask, __m512i a, __m512i b) {
  return _mm512_mask_mov_epi32(otherwise, mask, _mm512_max_epi32(a, b));
}

// Each lane of a joined with one of b; then all of them.
template <class Join>
inline int32_t reduce_lanes(__m512i a, Join join) {
  alignas(32) int32_t lanes[16];
  _mm512_store_si512(lanes, a);
  int32_t all = lanes[0];
  for (int i = 1; i < 16; ++i) all = join(all, lanes[i]);
  return all;
}
inline int32_t _mm512_reduce_max_epi32(__m512i a) {
  return reduce_lanes(a, [](int32_t b, int32_t c) { return b > c ? b : c; });
}
inline int32_t _mm512_reduce_add_epi32(__m512i a) {
  return reduce_lanes(a, [](int32_t b, int32_t c) { return b + c; });
}
inline int64_t _mm512_reduce_add_epi64(__m512i a) {
  alignas(32) int64_t lanes[8];
  _mm512_store_si512(lanes, a);
  uint64_t sum = 0;  // modulo 2^64
  for (const int64_t lane : lanes) sum += static_cast<uint64_t>(lane);
  return static_cast<int64_t>(sum);
}

}  // namespace splitserve
