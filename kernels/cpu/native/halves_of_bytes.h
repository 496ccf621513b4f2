// Types of eight and sixteen bits; see halves.h.
#pragma once

#include "halves_of_integers.h"

namespace splitserve {

inline __m512i _mm512_set1_epi8(char value) {
  return {_mm256_set1_epi8(value), _mm256_set1_epi8(value)};
}

inline __m512i _mm512_maskz_loadu_epi16(__mmask32 mask, const void* from) {
  if (mask == 0xffffffff) return _mm512_loadu_si512(from);
  __m512i some = _mm512_setzero_si512();
  copy_some<2>(&some, from, mask);
  return some;
}
inline __m512i _mm512_maskz_loadu_epi8(__mmask64 mask, const void* from) {
  if (mask == ~__mmask64{0}) return _mm512_loadu_si512(from);
  __m512i some = _mm512_setzero_si512();
  copy_some<1>(&some, from, mask);
  return some;
}
inline __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void* from) {
  if (mask == 0xffff) return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  __m256i some = _mm256_setzero_si256();
  copy_some<2>(&some, from, mask);
  return some;
}
inline void _mm512_mask_storeu_epi16(void* to, __mmask32 mask, __m512i a) {
  if (mask == 0xffffffff) return _mm512_storeu_si512(to, a);
  copy_some<2>(to, &a, mask);
}
inline void _mm256_mask_storeu_epi16(void* to, __mmask16 mask, __m256i a) {
  if (mask == 0xffff) return _mm256_storeu_si256(static_cast<__m256i*>(to), a);
  copy_some<2>(to, &a, mask);
}
inline void _mm_mask_storeu_epi8(void* to, __mmask16 mask, __m128i a) {
  if (mask == 0xffff) return _mm_storeu_si128(static_cast<__m128i*>(to), a);
  copy_some<1>(to, &a, mask);
}

inline __m512i _mm512_cvtepu16_epi32(__m256i a) {
  return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
          _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1))};
}
inline __m512i _mm512_cvtepi8_epi32(__m128i a) {
  return {_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8))};
}

// Sixteen lanes of 32 bits to 16 bits, in order; `a` is within 16 bits.
inline __m256i in_order(__m256i packed) { return _mm256_permute4x64_epi64(packed, 0xd8); }

inline __m128i narrow_to_bytes(__m256i packed) {
  const __m256i words = in_order(packed);
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
inline __m128i _mm512_cvtepi32_epi8(__m512i a) {
  const __m512i bytes = _mm512_and_si512(a, _mm512_set1_epi32(0xff));
  return narrow_to_bytes(_mm256_packus_epi32(bytes.low, bytes.high));
}
inline __m128i _mm512_cvtsepi32_epi8(__m512i a) {
  const __m256i words = in_order(_mm256_packs_epi32(a.low, a.high));
  return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

inline __m512 _mm512_cvtph_ps(__m256i a) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(a)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))};
}

// Floats to bfloat16 in the low half of each lane, to the nearest, ties to even; a NaN stays one, and
// what is subnormal stays it, which the instruction takes for zero.
inline __m256i narrow_half(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  const __m256 is_nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan));
}
inline __m256i _mm512_cvtneps_pbh(__m512 a) {
  return in_order(_mm256_packus_epi32(narrow_half(a.low), narrow_half(a.high)));
}
inline __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low) {
  return __m512bh(__m512i{_mm512_cvtneps_pbh(low), _mm512_cvtneps_pbh(high)});
}
#undef _mm_cvtneps_pbh
inline __m128i _mm_cvtneps_pbh(__m128 a) {
  return _mm_packus_epi32(_mm256_castsi256_si128(narrow_half(_mm256_castps128_ps256(a))),
                          _mm_setzero_si128());
}

// sum + a's odd values times b's + the even ones, each rounded.
inline __m256 add_products(__m256 sum, __m256i a, __m256i b) {
  const __m256i odd = _mm256_set1_epi32(-0x10000);
  sum = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(a, odd)),
                        _mm256_castsi256_ps(_mm256_and_si256(b, odd)), sum);
  return _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)),
                         _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)), sum);
}
// Rounds twice where the instruction may round once.
inline __m512 _mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b) {
  return {add_products(sum.low, a.words.low, b.words.low),
          add_products(sum.high, a.words.high, b.words.high)};
}

// Of the first lane only.
inline __m128 _mm_maskz_cvtph_ps(__mmask8 mask, __m128i a) {
  static_cast<void>(mask);
  return _mm_cvtph_ps(a);
}

}  // namespace splitserve
