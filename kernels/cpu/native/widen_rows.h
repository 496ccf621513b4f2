// One-byte values of a quantized KV pool -> bfloat16, exactly.
#pragma once

#include "kv_rows.h"
#ifdef __AVX512BF16__
#include "widening_table.h"
#else
#include "widening_of_halves.h"
#endif

namespace splitserve {

// The first `count` of 64 bytes.
inline __mmask64 first_bytes(int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

// Of one name a process has one static, whatever libraries have it: those of another level have
// tables of another form.
#ifndef __AVX512BF16__
inline namespace of_halves {
#endif
inline const WideningTable& widening_table(KvDtype dtype) {
  static const WideningTable kInt8(kKvInt8), kFp8(kKvFp8);
  return dtype == kKvInt8 ? kInt8 : kFp8;
}
#ifndef __AVX512BF16__
}  // namespace of_halves
#endif

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
