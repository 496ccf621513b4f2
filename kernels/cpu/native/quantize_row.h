// A row of floats -> one byte per value and a scale: row = values * scale, scale = max |row| / 127 or
// 448, values rounded to nearest, ties to even.
#pragma once

#include "kv_rows.h"

namespace splitserve {

// Of |values| <= 448 to E4M3, without sign.
inline __m512i to_e4m3(__m512 magnitude) {
  // normal: the fraction is rounded to 3 bits, the exponent's bias goes from 127 to 7
  const __m512i bits = _mm512_castps_si512(magnitude);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 20), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 20);
  const __m512i normal = _mm512_sub_epi32(rounded, _mm512_set1_epi32(120 << 3));
  // below 2^-6: steps of 2^-9
  const __m512i small = _mm512_cvtps_epi32(_mm512_mul_ps(magnitude, _mm512_set1_ps(512.0f)));
  const __mmask16 is_small =
      _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0.015625f), _CMP_LT_OQ);
  return _mm512_mask_mov_epi32(normal, is_small, small);
}

inline __m128i to_bytes(__m512 values, KvDtype dtype) {
  const __m512 largest = _mm512_set1_ps(dtype == kKvInt8 ? 127.0f : 448.0f);
  const __m512 low = _mm512_sub_ps(_mm512_setzero_ps(), largest);
  values = _mm512_min_ps(largest, _mm512_max_ps(low, values));
  if (dtype == kKvInt8) return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(values));
  const __m512i sign = _mm512_srli_epi32(_mm512_castps_si512(values), 31);
  const __m512i code = to_e4m3(_mm512_abs_ps(values));
  return _mm512_cvtepi32_epi8(_mm512_or_si512(code, _mm512_slli_epi32(sign, 7)));
}

inline void quantize_row(const float* row, int64_t dim, KvDtype dtype, char* values,
                         float* scale) {
  __m512 top = _mm512_setzero_ps();
  for (int64_t i = 0; i < dim; i += 16)
    top = _mm512_max_ps(_mm512_abs_ps(_mm512_maskz_loadu_ps(first_lanes(dim - i), row + i)), top);
  *scale = _mm512_reduce_max_ps(top) / (dtype == kKvInt8 ? 127.0f : 448.0f);
  const __m512 divisor = _mm512_set1_ps(*scale > 0.0f ? *scale : 1.0f);
  for (int64_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = first_lanes(dim - i);
    const __m512 scaled = _mm512_div_ps(_mm512_maskz_loadu_ps(mask, row + i), divisor);
    _mm_mask_storeu_epi8(values + i, mask, to_bytes(scaled, dtype));
  }
}

}  // namespace splitserve
