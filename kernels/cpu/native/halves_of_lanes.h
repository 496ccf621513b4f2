// Masks, memory, and what moves lanes; see halves.h.
//
// Loads and stores of whole vectors are by far the most: they are asked for first. Of others, only
// lanes whose bit is set are read or written. (On Zen 3 a masked store takes twenty times as long as
// a whole one.)
#pragma once

#include "halves.h"

namespace splitserve {

// All bits of the lanes whose bit in `mask` is set.
inline __m256i half_mask(uint32_t mask) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(mask)), bits), bits);
}
inline __m512i whole_mask(__mmask16 mask) { return {half_mask(mask), half_mask(mask >> 8)}; }

inline __mmask16 mask_of(__m256 low, __m256 high) {
  return static_cast<__mmask16>(_mm256_movemask_ps(low) | _mm256_movemask_ps(high) << 8);
}
inline __mmask16 mask_of(__m256i low, __m256i high) {
  return mask_of(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high));
}

// Items whose bit is set, of `size` bytes each.
template <int size>
inline void copy_some(void* to, const void* from, uint64_t mask) {
  auto* at = static_cast<char*>(to);
  const auto* read = static_cast<const char*>(from);
  for (; mask != 0; mask &= mask - 1) {
    const int i = __builtin_ctzll(mask);
    std::memcpy(at + i * size, read + i * size, size);
  }
}

inline __m512 _mm512_loadu_ps(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
inline __m512 _mm512_load_ps(const float* from) {
  return {_mm256_load_ps(from), _mm256_load_ps(from + 8)};
}
inline void _mm512_storeu_ps(float* to, __m512 a) {
  _mm256_storeu_ps(to, a.low);
  _mm256_storeu_ps(to + 8, a.high);
}
inline void _mm512_store_ps(float* to, __m512 a) {
  _mm256_store_ps(to, a.low);
  _mm256_store_ps(to + 8, a.high);
}

inline __m512i _mm512_loadu_si512(const void* from) {
  const auto* halves = static_cast<const __m256i*>(from);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
inline __m512i _mm512_load_si512(const void* from) {
  const auto* halves = static_cast<const __m256i*>(from);
  return {_mm256_load_si256(halves), _mm256_load_si256(halves + 1)};
}
inline void _mm512_storeu_si512(void* to, __m512i a) {
  auto* halves = static_cast<__m256i*>(to);
  _mm256_storeu_si256(halves, a.low);
  _mm256_storeu_si256(halves + 1, a.high);
}
inline void _mm512_store_si512(void* to, __m512i a) {
  auto* halves = static_cast<__m256i*>(to);
  _mm256_store_si256(halves, a.low);
  _mm256_store_si256(halves + 1, a.high);
}

inline __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const float* from) {
  if (mask == 0xffff) return _mm512_loadu_ps(from);
  const __m512i lanes = whole_mask(mask);
  return {_mm256_maskload_ps(from, lanes.low), _mm256_maskload_ps(from + 8, lanes.high)};
}
inline __m512i _mm512_maskz_loadu_epi32(__mmask16 mask, const void* from) {
  return _mm512_castps_si512(_mm512_maskz_loadu_ps(mask, static_cast<const float*>(from)));
}
inline void _mm512_mask_storeu_ps(float* to, __mmask16 mask, __m512 a) {
  if (mask == 0xffff) return _mm512_storeu_ps(to, a);
  copy_some<4>(to, &a, mask);
}
inline void _mm512_mask_storeu_epi32(void* to, __mmask16 mask, __m512i a) {
  _mm512_mask_storeu_ps(static_cast<float*>(to), mask, _mm512_castsi512_ps(a));
}

inline __m512 _mm512_mask_mov_ps(__m512 otherwise, __mmask16 mask, __m512 a) {
  const __m512 lanes = _mm512_castsi512_ps(whole_mask(mask));
  return {_mm256_blendv_ps(otherwise.low, a.low, lanes.low),
          _mm256_blendv_ps(otherwise.high, a.high, lanes.high)};
}
inline __m512 _mm512_maskz_mov_ps(__mmask16 mask, __m512 a) {
  const __m512 lanes = _mm512_castsi512_ps(whole_mask(mask));
  return {_mm256_and_ps(a.low, lanes.low), _mm256_and_ps(a.high, lanes.high)};
}
inline __m512i _mm512_mask_mov_epi32(__m512i otherwise, __mmask16 mask, __m512i a) {
  return _mm512_castps_si512(
      _mm512_mask_mov_ps(_mm512_castsi512_ps(otherwise), mask, _mm512_castsi512_ps(a)));
}
inline __m512 _mm512_mask_loadu_ps(__m512 otherwise, __mmask16 mask, const float* from) {
  if (mask == 0xffff) return _mm512_loadu_ps(from);
  return _mm512_mask_mov_ps(otherwise, mask, _mm512_maskz_loadu_ps(mask, from));
}
inline __m512 _mm512_maskz_div_ps(__mmask16 mask, __m512 a, __m512 b) {
  return _mm512_maskz_mov_ps(mask, _mm512_div_ps(a, b));
}

// Operands that are part of an instruction are parts of a name here.
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask(a, b, how) (compare<how>(a, b))
#undef _mm512_mask_cmp_ps_mask
#define _mm512_mask_cmp_ps_mask(mask, a, b, how) \
  (static_cast<__mmask16>((mask) & compare<how>(a, b)))
#undef _mm512_shuffle_ps
#define _mm512_shuffle_ps(a, b, how) (shuffle<how>(a, b))
#undef _mm512_permute_ps
#define _mm512_permute_ps(a, how) (shuffle<how>(a, a))
#undef _mm512_shuffle_i32x4
#define _mm512_shuffle_i32x4(a, b, how) (shuffle_quarters<how>(a, b))
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4(a, b, how) \
  (_mm512_castsi512_ps(                 \
      shuffle_quarters<how>(_mm512_castps_si512(a), _mm512_castps_si512(b))))
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(a, half) (half_of<half>(a))
#undef _mm512_extracti64x4_epi64
#define _mm512_extracti64x4_epi64(a, half) (half_of<half>(a))

template <int how>
inline __mmask16 compare(__m512 a, __m512 b) {
  return mask_of(_mm256_cmp_ps(a.low, b.low, how), _mm256_cmp_ps(a.high, b.high, how));
}

template <int how>
inline __m512 shuffle(__m512 a, __m512 b) {
  return {_mm256_shuffle_ps(a.low, b.low, how), _mm256_shuffle_ps(a.high, b.high, how)};
}

// Two of a's four quarters, then two of b's: two bits of `how` say which, for each.
template <int how>
inline __m512i shuffle_quarters(__m512i a, __m512i b) {
  constexpr int kOfA = (how & 3) | (how >> 2 & 3) << 4, kOfB = (how >> 4 & 3) | (how >> 6 & 3) << 4;
  return {_mm256_permute2x128_si256(a.low, a.high, kOfA),
          _mm256_permute2x128_si256(b.low, b.high, kOfB)};
}

template <int half>
inline __m256 half_of(__m512 a) {
  return half == 0 ? a.low : a.high;
}
template <int half>
inline __m256i half_of(__m512i a) {
  return half == 0 ? a.low : a.high;
}

}  // namespace splitserve
