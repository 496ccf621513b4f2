// Lanes in one register of 512 bits; the first of them by a mask.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace splitserve {

using Sixteen = __m512;
using Part = __mmask16;  // which of sixteen values are there
constexpr int kWhole = 0xffff;

inline Part first_of(int count) { return static_cast<Part>((1u << count) - 1); }

inline Sixteen added(Sixteen a, Sixteen b) { return _mm512_add_ps(a, b); }

struct Float32Lanes {
  using Value = float;
  static Sixteen load(const Value* from, Part part) { return _mm512_maskz_loadu_ps(part, from); }
  static void store(Value* to, Sixteen values, Part part) {
    _mm512_mask_storeu_ps(to, part, values);
  }
};

struct BFloat16Lanes {
  using Value = uint16_t;
  static Sixteen load(const Value* from, Part part) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(part, from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  }
  static void store(Value* to, Sixteen values, Part part) {
    _mm256_mask_storeu_epi16(to, part, (__m256i)_mm512_cvtneps_pbh(values));
  }
};

struct Float16Lanes {
  using Value = uint16_t;
  static Sixteen load(const Value* from, Part part) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(part, from));
  }
  static void store(Value* to, Sixteen values, Part part) {
    _mm256_mask_storeu_epi16(to, part, _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace splitserve
