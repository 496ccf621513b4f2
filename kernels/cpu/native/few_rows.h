// Attention of at most kBlockRows rows of bfloat16, as in decode: keys pass through a small panel and
// values go from the pool to the multiply-adds, so that the first-level cache has room for what comes
// from memory. The order of the arithmetic is that of panels of whole chunks, and so are the bits.
//
// Rows of the query are padded with zeros to whole strips. Each reading asks for the same place of
// the next chunk's row: hints in a burst are dropped by the processor, these are spread out.
#pragma once

#include "attention_panels.h"
#include "widen_rows.h"

namespace splitserve {

// A strip of keys is kWords words of all tokens of a chunk, brought to panel [kWords][64 tokens].
struct PlainRows {
  static constexpr int64_t kWords = 16;
  int64_t dim;

  inline __attribute__((always_inline)) void keys(const char* const* rows, const char* const* next,
                                                  int64_t word, Word* panel) const {
    const __mmask16 mask = first_lanes(dim / 2 - word);
    __m512i square[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      square[i] = _mm512_maskz_loadu_epi32(mask, reinterpret_cast<const Word*>(rows[i]) + word);
      _mm_prefetch(next[i] + word * sizeof(Word), _MM_HINT_T1);
    }
    transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(panel + i * kPanelColumns, square[i]);
  }

  // 64 values of a row, those in `mask`, in two halves.
  inline __attribute__((always_inline)) void values(const char* row, const char* next,
                                                    int64_t column, __mmask64 mask,
                                                    __m512i (&halves)[2]) const {
    const int64_t at = column * sizeof(uint16_t);
    halves[0] = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask), row + at);
    halves[1] = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(mask >> 32), row + at + 64);
    _mm_prefetch(next + at, _MM_HINT_T1);
    _mm_prefetch(next + at + 64, _MM_HINT_T1);
  }
};

struct ByteRows {
  static constexpr int64_t kWords = 32;
  int64_t dim;
  const WideningTable& table;

  inline __attribute__((always_inline)) void keys(const char* const* rows, const char* const* next,
                                                  int64_t word, Word* panel) const {
    const __mmask64 mask = first_bytes(dim - 2 * word);
    __m512i square[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      square[i] = _mm512_maskz_loadu_epi8(mask, rows[i] + 2 * word);
      _mm_prefetch(next[i] + 2 * word, _MM_HINT_T1);
    }
    transpose(square);  // each lane: four channels of one token
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m512i words[2];
      table.widen_lanes(square[i], words);
      _mm512_store_si512(panel + 2 * i * kPanelColumns, words[0]);
      _mm512_store_si512(panel + (2 * i + 1) * kPanelColumns, words[1]);
    }
  }

  inline __attribute__((always_inline)) void values(const char* row, const char* next,
                                                    int64_t column, __mmask64 mask,
                                                    __m512i (&halves)[2]) const {
    table.widen(_mm512_maskz_loadu_epi8(mask, row + column), halves);
    _mm_prefetch(next + column, _MM_HINT_T1);
  }
};

// Scores of R rows for 16 V tokens. `panel` has room for a strip.
template <int R, int V, class Rows>
inline __attribute__((always_inline)) void score_few_rows(const Rows& rows, const ChunkRows& chunk,
                                                          const ChunkRows& next, const Word* query,
                                                          int64_t query_words, Word* panel,
                                                          __m512 (&sums)[R][V]) {
  for (auto& row : sums)
    for (auto& vector : row) vector = _mm512_setzero_ps();
  for (int64_t word = 0; word < query_words; word += Rows::kWords) {
    for (int64_t token = 0; token < 16 * V; token += 16)
      rows.keys(chunk.keys + token, next.keys + token, word, panel + token);
    multiply_block<BFloat16, R, V>(query + word, query_words, panel, Rows::kWords, sums);
  }
}

// Adds weighted values of `steps` pairs of tokens to 16 V columns of R rows.
template <int R, int V, class Rows>
inline __attribute__((always_inline)) void add_few_rows(const Rows& rows, const ChunkRows& chunk,
                                                        const ChunkRows& next, const Word* weights,
                                                        int64_t column, int64_t steps,
                                                        __m512 (&sums)[R][V]) {
  constexpr int64_t kSteps = kChunk / 2;
  const TokenPairs pairs;
  const __mmask64 mask = first_bytes(rows.dim - column);
  for (int64_t step = 0; step < steps; ++step) {
    __m512i a[2], b[2];
    rows.values(chunk.values[2 * step], next.values[2 * step], column, mask, a);
    rows.values(chunk.values[2 * step + 1], next.values[2 * step + 1], column, mask, b);
    const __m512i words[4] = {pairs.left(a[0], b[0]), pairs.right(a[0], b[0]),
                              pairs.left(a[1], b[1]), pairs.right(a[1], b[1])};
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i weight = _mm512_set1_epi32(weights[r * kSteps + step]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = BFloat16::multiply_add(sums[r][v], words[v], weight);
    }
  }
}

}  // namespace splitserve
