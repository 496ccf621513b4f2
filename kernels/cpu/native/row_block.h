// The inner product of attention: R rows times a panel of up to 64 columns, in registers.
//
//   panel  words [num_steps][64]: step s holds word s of each column
//   rows   words [R][num_steps], `stride` words apart
//
// As in tile.h each output is one chain of multiply-adds in the order of the words, whatever R and V
// are. 6 rows by 4 vectors take 10 loads per 24 multiply-adds; 12 by 2 take 14.
#pragma once

#include <type_traits>

#include "element.h"

namespace splitserve {

// Where vectors are halves, 4 rows by one vector at a time: 8 accumulators of 16 registers.
constexpr int kBlockRows = kIsWide ? 6 : 4;
constexpr int kPanelVectors = 4;
constexpr int64_t kPanelColumns = 16 * kPanelVectors;

// One vector of the columns.
template <class E, int R, int V>
inline void multiply_vector(const Word* rows, int64_t stride, const Word* panel, int64_t num_steps,
                            __m512 (&sums)[R][V], int v) {
  __m512 some[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) some[r] = sums[r][v];
  for (int64_t step = 0; step < num_steps; ++step) {
    const __m512i columns = _mm512_loadu_si512(panel + step * kPanelColumns + 16 * v);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
      some[r] = E::multiply_add(some[r], columns, _mm512_set1_epi32(rows[r * stride + step]));
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r][v] = some[r];
}

template <class E, int R, int V>
inline __attribute__((always_inline)) void multiply_block(const Word* rows, int64_t stride,
                                                          const Word* panel, int64_t num_steps,
                                                          __m512 (&sums)[R][V]) {
  if constexpr (!kIsWide) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) multiply_vector<E>(rows, stride, panel, num_steps, sums, v);
    return;
  }
  for (int64_t step = 0; step < num_steps; ++step, panel += kPanelColumns) {
    __m512i columns[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) columns[v] = _mm512_loadu_si512(panel + 16 * v);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i value = _mm512_set1_epi32(rows[r * stride + step]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = E::multiply_add(sums[r][v], columns[v], value);
    }
  }
}

// Calls body(std::integral_constant<int, count>) for a count of 1 to Most.
template <int Most, class Body>
inline void with_count(int64_t count, Body&& body) {
  if constexpr (Most > 1) {
    if (count < Most) return with_count<Most - 1>(count, body);
  }
  body(std::integral_constant<int, Most>{});
}

// Splits `count` rows into blocks of nearly equal size, at most kBlockRows each: body(first, size).
template <class Body>
inline void for_row_blocks(int64_t count, Body&& body) {
  const int64_t blocks = (count + kBlockRows - 1) / kBlockRows;
  const int64_t size = count / blocks, num_larger = count % blocks;
  for (int64_t block = 0, first = 0; block < blocks; ++block) {
    const int64_t rows = size + (block < num_larger);
    body(first, rows);
    first += rows;
  }
}

}  // namespace splitserve
