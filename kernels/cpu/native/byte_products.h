// Dot products of a span, four at a time into each lane: a matrix's unsigned bytes times signed bytes
// of activations. All are exact. They begin with what the caller has to add, and are told it once more
// for the total: one or the other is of use.
#pragma once

#include "grouped_matrix.h"

namespace splitserve {

#ifdef __AVX512VNNI__

// One instruction takes four products into a lane, of bytes of any size.
template <class Values>
class SpanDots {
 public:
  void begin(__m512i first) { sums_ = first; }
  void add(__m512i values, __m512i x) { sums_ = _mm512_dpbusd_epi32(sums_, values, x); }
  __m512i total(__m512i) const { return sums_; }

 private:
  __m512i sums_;
};

#else

inline __m512i add_pairs(__m512i pairs) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(pairs.low, ones), _mm256_madd_epi16(pairs.high, ones)};
}

inline __m512i multiply_pairs(__m512i values, __m512i x) {
  return {_mm256_maddubs_epi16(values.low, x.low), _mm256_maddubs_epi16(values.high, x.high)};
}

// Pairs of products go to 16 bits, which hold those of a whole span: 16 * 15 * 127 < 2^15.
template <class Values>
class SpanDots {
 public:
  void begin(__m512i) { pairs_ = _mm512_setzero_si512(); }
  void add(__m512i values, __m512i x) {
    const __m512i products = multiply_pairs(values, x);
    pairs_ = {_mm256_add_epi16(pairs_.low, products.low),
              _mm256_add_epi16(pairs_.high, products.high)};
  }
  __m512i total(__m512i first) const { return _mm512_add_epi32(first, add_pairs(pairs_)); }

 private:
  static_assert(kSpanSteps * 2 * 15 * 127 < 1 << 15);
  __m512i pairs_;
};

// Values about their centre, whose sizes are multiplied with x under their signs: two products fit 16
// bits, 2 * 128 * 127 < 2^15. What the caller has to add is -centre times the sum of x, and is in
// them.
template <>
class SpanDots<EightBits> {
 public:
  void begin(__m512i) { sums_ = _mm512_setzero_si512(); }
  void add(__m512i values, __m512i x) {
    const __m512i centred = _mm512_xor_si512(values, _mm512_set1_epi8(static_cast<char>(0x80)));
    sums_ = {_mm256_add_epi32(sums_.low, products(centred.low, x.low)),
             _mm256_add_epi32(sums_.high, products(centred.high, x.high))};
  }
  __m512i total(__m512i) const { return sums_; }

 private:
  static __m256i products(__m256i centred, __m256i x) {
    return _mm256_madd_epi16(
        _mm256_maddubs_epi16(_mm256_abs_epi8(centred), _mm256_sign_epi8(x, centred)),
        _mm256_set1_epi16(1));
  }

  __m512i sums_;
};

#endif

}  // namespace splitserve
