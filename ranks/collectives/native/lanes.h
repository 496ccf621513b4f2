// Sixteen values at a time, as floats: of float32, bfloat16 and float16. Rounded to the nearest, once.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace splitserve {

enum ValueType : int32_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

struct Float32Lanes {
  using Value = float;
  static __m512 load(const Value* from, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, from); }
  static void store(Value* to, __m512 values, __mmask16 mask) {
    _mm512_mask_storeu_ps(to, mask, values);
  }
};

struct BFloat16Lanes {
  using Value = uint16_t;
  static __m512 load(const Value* from, __mmask16 mask) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  }
  static void store(Value* to, __m512 values, __mmask16 mask) {
    _mm256_mask_storeu_epi16(to, mask, (__m256i)_mm512_cvtneps_pbh(values));
  }
};

struct Float16Lanes {
  using Value = uint16_t;
  static __m512 load(const Value* from, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from));
  }
  static void store(Value* to, __m512 values, __mmask16 mask) {
    _mm256_mask_storeu_epi16(to, mask, _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
};

// The sum of `num_ranks` vectors of `count` values, in the order of the ranks, to `out`, and to
// `copy` where it is not null. `out` may be one of them.
template <class Lanes>
void add_ranks(const typename Lanes::Value* const* parts, int64_t num_ranks, int64_t count,
               typename Lanes::Value* out, typename Lanes::Value* copy) {
  const auto add = [&](int64_t i, __mmask16 mask) {
    __m512 sum = Lanes::load(parts[0] + i, mask);
    for (int64_t rank = 1; rank < num_ranks; ++rank)
      sum = _mm512_add_ps(sum, Lanes::load(parts[rank] + i, mask));
    Lanes::store(out + i, sum, mask);
    if (copy != nullptr) Lanes::store(copy + i, sum, mask);
  };
  int64_t i = 0;
  for (; i + 64 <= count; i += 64)
#pragma GCC unroll 4
    for (int lane = 0; lane < 64; lane += 16) add(i + lane, 0xffff);
  for (; i < count; i += 16)
    add(i, count - i >= 16 ? 0xffff : static_cast<__mmask16>((1u << (count - i)) - 1));
}

}  // namespace splitserve
