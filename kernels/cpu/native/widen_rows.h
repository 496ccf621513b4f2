// One-byte values of a quantized KV pool -> bfloat16, exactly, by a table of the 128 magnitudes.
// (int8 has 7 bits beside its sign and bfloat16 keeps 8; E4M3 has fewer.)
#pragma once

#include <cmath>

#include "kv_rows.h"

namespace splitserve {

inline float magnitude_of(KvDtype dtype, int code) {
  if (dtype == kKvInt8) return static_cast<float>(code);
  if (code == 0x7f) return NAN;  // E4M3FN has no infinity
  const int exponent = code >> 3, fraction = code & 7;
  return exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
}

// The first `count` of 64 bytes.
inline __mmask64 first_bytes(int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

class WideningTable {
 public:
  explicit WideningTable(KvDtype dtype) : is_int8_(dtype == kKvInt8) {
    for (int code = 0; code < 128; ++code) {
      const float value = magnitude_of(dtype, code);
      uint32_t bits;
      __builtin_memcpy(&bits, &value, sizeof bits);
      low_[code] = static_cast<uint8_t>(bits >> 16);
      high_[code] = static_cast<uint8_t>(bits >> 24);
    }
    for (int i = 0; i < 64; ++i) {
      pairs_[i] = static_cast<uint8_t>(i / 2 + i % 2 * 64);
      lane_pairs_[i] = static_cast<uint8_t>(i / 4 * 4 + i % 4 / 2 + i % 2 * 64);
    }
  }

  // 64 values -> bfloat16 [64], in order.
  void widen(__m512i values, __m512i (&wide)[2]) const { widen_by(pairs_, 32, values, wide); }

  // Four values in each 32-bit lane -> the first two of each lane, the other two.
  void widen_lanes(__m512i values, __m512i (&wide)[2]) const {
    widen_by(lane_pairs_, 2, values, wide);
  }

 private:
  // `order` says where the low and the high bytes of wide[0] come from; wide[1] lies `apart` further.
  inline __attribute__((always_inline)) void widen_by(const uint8_t* order, char apart,
                                                      __m512i values, __m512i (&wide)[2]) const {
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i magnitude = is_int8_ ? _mm512_abs_epi8(values) : _mm512_andnot_si512(sign, values);
    const __m512i low = look_up(low_, magnitude);
    const __m512i unsigned_high = look_up(high_, magnitude);
    const __m512i high = _mm512_ternarylogic_epi64(unsigned_high, values, sign, 0xf8);  // a | b & c
    const __m512i pairs = _mm512_load_si512(order);
    wide[0] = _mm512_permutex2var_epi8(low, pairs, high);
    wide[1] = _mm512_permutex2var_epi8(low, _mm512_add_epi8(pairs, _mm512_set1_epi8(apart)), high);
  }

  static __m512i look_up(const uint8_t* table, __m512i codes) {
    return _mm512_permutex2var_epi8(_mm512_loadu_si512(table), codes,
                                    _mm512_loadu_si512(table + 64));
  }

  alignas(64) uint8_t low_[128], high_[128], pairs_[64], lane_pairs_[64];
  bool is_int8_;
};

inline const WideningTable& widening_table(KvDtype dtype) {
  static const WideningTable kInt8(kKvInt8), kFp8(kKvFp8);
  return dtype == kKvInt8 ? kInt8 : kFp8;
}

inline void store_widened(__m512i values, uint16_t* to) { _mm512_storeu_si512(to, values); }

inline void store_widened(__m512i values, float* to) {
  _mm512_storeu_ps(to, BFloat16::widen(_mm512_castsi512_si256(values)));
  _mm512_storeu_ps(to + 16, BFloat16::widen(_mm512_extracti64x4_epi64(values, 1)));
}

// kChunk rows -> [kChunk][stride]; `stride` is a multiple of 64.
template <class Value>
void widen_rows(const WideningTable& table, const char* const* rows, int64_t dim, int64_t stride,
                Value* to) {
  for (int64_t row = 0; row < kChunk; ++row, to += stride)
    for (int64_t i = 0; i < dim; i += 64) {
      const __mmask64 mask = first_bytes(dim - i);
      __m512i wide[2];
      table.widen(_mm512_maskz_loadu_epi8(mask, rows[row] + i), wide);
      store_widened(wide[0], to + i);
      store_widened(wide[1], to + i + 32);
    }
}

}  // namespace splitserve
