// Lanes in two registers of 256 bits, with the bits of `lanes_avx512.h`; the first of them by way of
// a copy, since masked stores of AMD's CPUs are slow.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace splitserve {

struct Sixteen {
  __m256 low, high;
};
using Part = int;  // how many of sixteen values are there, the first ones
constexpr Part kWhole = 16;

inline Part first_of(int count) { return count; }

inline Sixteen added(Sixteen a, Sixteen b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

// What `Lanes` has for all sixteen, for the first of them.
template <class Lanes, class Element>
struct InParts {
  using Value = Element;
  static Sixteen load(const Value* from, Part part) {
    if (part == kWhole) return Lanes::load_all(from);
    Value values[kWhole] = {};
    std::memcpy(values, from, part * sizeof(Value));
    return Lanes::load_all(values);
  }
  static void store(Value* to, Sixteen sixteen, Part part) {
    if (part == kWhole) return Lanes::store_all(to, sixteen);
    Value values[kWhole];
    Lanes::store_all(values, sixteen);
    std::memcpy(to, values, part * sizeof(Value));
  }
};

struct Float32Lanes : InParts<Float32Lanes, float> {
  static Sixteen load_all(const float* from) {
    return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
  }
  static void store_all(float* to, Sixteen values) {
    _mm256_storeu_ps(to, values.low);
    _mm256_storeu_ps(to + 8, values.high);
  }
};

struct BFloat16Lanes : InParts<BFloat16Lanes, uint16_t> {
  static Sixteen load_all(const uint16_t* from) { return {widened(from), widened(from + 8)}; }
  static void store_all(uint16_t* to, Sixteen values) {
    const __m256i mixed = _mm256_packus_epi32(rounded(values.low), rounded(values.high));
    _mm256_storeu_si256((__m256i*)to, _mm256_permute4x64_epi64(mixed, 0b11011000));
  }

 private:
  static __m256 widened(const uint16_t* from) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  }
  // To the nearest, of two to the even one. As vcvtneps2bf16 has it, what is not a number is a quiet
  // one, and what is subnormal is zero.
  static __m256i rounded(__m256 values) {
    const __m256i bits = _mm256_castps_si256(values), high = _mm256_srli_epi32(bits, 16);
    const __m256i is_odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7fff));
    const __m256i nearest = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i zero = _mm256_and_si256(high, _mm256_set1_epi32(0x8000));
    const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000));
    const __m256i is_subnormal = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(_mm256_blendv_epi8(nearest, quiet, is_nan), zero, is_subnormal);
  }
};

struct Float16Lanes : InParts<Float16Lanes, uint16_t> {
  static Sixteen load_all(const uint16_t* from) {
    const auto* words = (const __m128i*)from;
    return {_mm256_cvtph_ps(_mm_loadu_si128(words)), _mm256_cvtph_ps(_mm_loadu_si128(words + 1))};
  }
  static void store_all(uint16_t* to, Sixteen values) {
    auto* words = (__m128i*)to;
    _mm_storeu_si128(words, _mm256_cvtps_ph(values.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(words + 1, _mm256_cvtps_ph(values.high, _MM_FROUND_TO_NEAREST_INT));
  }
};

}  // namespace splitserve
