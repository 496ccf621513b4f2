// Keys and values of a chunk -> panels for row_block.h.
//
//   keys    words [head_dim / kPerWord][64 tokens]
//   values  words [columns / 64][kChunk / kPerWord][64 columns], columns past the head's end are zero
#pragma once

#include "kv_rows.h"
#include "row_block.h"

namespace splitserve {

// 16 rows of 16 words -> 16 columns.
inline __attribute__((always_inline)) void transpose(__m512i (&rows)[16]) {
  __m512i half[16];
  for (int i = 0; i < 16; i += 2) {
    half[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    half[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    half[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    half[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
    half[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    half[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    rows[i] = _mm512_shuffle_i32x4(half[i], half[i + 8], 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(half[i], half[i + 8], 0xdd);
  }
}

inline void pack_keys(const char* const* rows, int64_t words, Word* panel, Ahead& ahead) {
  for (int64_t token = 0; token < kChunk; token += 16)
    for (int64_t word = 0; word < words; word += 16) {
      const __mmask16 mask = first_lanes(words - word);
      __m512i square[16];
      for (int i = 0; i < 16; ++i)
        square[i] = _mm512_maskz_loadu_epi32(
            mask, reinterpret_cast<const Word*>(rows[token + i]) + word);
      for (int i = 0; i < 16; ++i) ahead.take();
      transpose(square);
      Word* to = panel + word * kPanelColumns + token;
      if (words - word >= 16)
        for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * kPanelColumns, square[i]);
      else
        for (int i = 0; i < words - word; ++i)
          _mm512_storeu_si512(to + i * kPanelColumns, square[i]);
    }
}

// Two tokens of bfloat16 share a word: of 32 columns, those of the left and of the right half.
#ifdef __AVX512BF16__
alignas(64) inline constexpr uint16_t kPairLeft[32] = {
    0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
    8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
alignas(64) inline constexpr uint16_t kPairRight[32] = {
    16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
    24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};

struct TokenPairs {
  const __m512i left_places = _mm512_load_si512(kPairLeft);
  const __m512i right_places = _mm512_load_si512(kPairRight);

  __m512i left(__m512i a, __m512i b) const { return _mm512_permutex2var_epi16(a, left_places, b); }
  __m512i right(__m512i a, __m512i b) const { return _mm512_permutex2var_epi16(a, right_places, b); }
};
#else
struct TokenPairs {
  static __m512i of_half(__m256i a, __m256i b) {
    const __m256i first = _mm256_unpacklo_epi16(a, b), second = _mm256_unpackhi_epi16(a, b);
    return {_mm256_permute2x128_si256(first, second, 0x20),
            _mm256_permute2x128_si256(first, second, 0x31)};
  }

  static __m512i left(__m512i a, __m512i b) { return of_half(a.low, b.low); }
  static __m512i right(__m512i a, __m512i b) { return of_half(a.high, b.high); }
};
#endif

inline void pack_values(BFloat16, const char* const* rows, int64_t dim, Word* panels,
                        Ahead& ahead) {
  const TokenPairs pairs;
  for (int64_t token = 0; token < kChunk; token += 2) {
    for (int i = 0; i < 4; ++i) ahead.take();
    for (int64_t column = 0; column < dim; column += 32) {
      const int64_t count = dim - column;
      const __mmask32 mask = count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
      const auto* first = reinterpret_cast<const uint16_t*>(rows[token]) + column;
      const auto* second = reinterpret_cast<const uint16_t*>(rows[token + 1]) + column;
      const __m512i a = _mm512_maskz_loadu_epi16(mask, first);
      const __m512i b = _mm512_maskz_loadu_epi16(mask, second);
      Word* to = panels + column / kPanelColumns * kPanelColumns * (kChunk / 2) +
                 token / 2 * kPanelColumns + column % kPanelColumns;
      _mm512_storeu_si512(to, pairs.left(a, b));
      _mm512_storeu_si512(to + 16, pairs.right(a, b));
    }
  }
}

inline void pack_values(Float32, const char* const* rows, int64_t dim, Word* panels,
                        Ahead& ahead) {
  for (int64_t token = 0; token < kChunk; ++token) {
    for (int i = 0; i < 4; ++i) ahead.take();
    for (int64_t column = 0; column < dim; column += 16) {
      const auto* from = reinterpret_cast<const Word*>(rows[token]) + column;
      Word* to = panels + column / kPanelColumns * kPanelColumns * kChunk +
                 token * kPanelColumns + column % kPanelColumns;
      _mm512_storeu_si512(to, _mm512_maskz_loadu_epi32(first_lanes(dim - column), from));
    }
  }
}

}  // namespace splitserve
