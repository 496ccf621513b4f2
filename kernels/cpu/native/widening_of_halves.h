// One-byte values -> bfloat16 by way of floats: AVX2 looks up nothing in tables of 128.
#pragma once

#include "kv_rows.h"

namespace splitserve {

class WideningTable {
 public:
  explicit WideningTable(KvDtype dtype) : is_int8_(dtype == kKvInt8) {}

  // 64 values -> bfloat16 [64], in order.
  void widen(__m512i values, __m512i (&wide)[2]) const {
    wide[0] = {in_order(values.low, 0), in_order(values.low, 1)};
    wide[1] = {in_order(values.high, 0), in_order(values.high, 1)};
  }

  // Four values in each 32-bit lane -> the first two of each lane, the other two.
  void widen_lanes(__m512i values, __m512i (&wide)[2]) const {
    wide[0] = {pairs<0>(values.low), pairs<0>(values.high)};
    wide[1] = {pairs<2>(values.low), pairs<2>(values.high)};
  }

 private:
  // A byte in the highest of each lane -> the value's bits, of which the lower half is zero.
  inline __attribute__((always_inline)) __m256i bits(__m256i lanes) const {
    return _mm256_castps_si256(is_int8_ ? _mm256_cvtepi32_ps(_mm256_srai_epi32(lanes, 24))
                                        : from_e4m3(lanes));
  }

  // As float16 a value's bits are 2^-8 of it, whether it is normal or not; 0x7f alone is no number.
  static __m256 from_e4m3(__m256i lanes) {
    const __m256i magnitude = _mm256_and_si256(_mm256_srli_epi32(lanes, 24), _mm256_set1_epi32(127));
    const __m256i words = _mm256_packus_epi32(_mm256_slli_epi32(magnitude, 7), magnitude);
    const __m128i halves =
        _mm256_castsi256_si128(_mm256_permute4x64_epi64(words, 0xd8));
    const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(256.0f));
    const __m256i is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(127));
    const __m256i sign = _mm256_and_si256(lanes, _mm256_set1_epi32(INT32_MIN));
    const __m256i quiet = _mm256_and_si256(is_nan, _mm256_set1_epi32(0x7fc00000));
    return _mm256_or_ps(value, _mm256_castsi256_ps(_mm256_or_si256(sign, quiet)));
  }

  // Bytes `first` and `first` + 1 of each lane -> the two in a word.
  template <int first>
  inline __attribute__((always_inline)) __m256i pairs(__m256i values) const {
    const __m256i low = bits(_mm256_slli_epi32(values, 24 - 8 * first));
    const __m256i high = bits(_mm256_slli_epi32(values, 16 - 8 * first));
    return _mm256_or_si256(_mm256_srli_epi32(low, 16), high);
  }

  // Sixteen of 32 values.
  inline __attribute__((always_inline)) __m256i in_order(__m256i values, int half) const {
    const __m128i some = half == 0 ? _mm256_castsi256_si128(values)
                                   : _mm256_extracti128_si256(values, 1);
    const __m256i left = bits(_mm256_slli_epi32(_mm256_cvtepu8_epi32(some), 24));
    const __m256i right =
        bits(_mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_srli_si128(some, 8)), 24));
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi32(_mm256_srli_epi32(left, 16), _mm256_srli_epi32(right, 16)), 0xd8);
  }

  bool is_int8_;
};

}  // namespace splitserve
