// One-byte values -> bfloat16 by a table of the 128 magnitudes. (int8 has 7 bits beside its sign and
// bfloat16 keeps 8; E4M3 has fewer.)
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

}  // namespace splitserve
