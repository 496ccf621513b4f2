// The inner product of everything: R rows times one panel of 32 columns.
//
//   panel  words [num_steps][32]: step s holds word s of each of 32 columns
//   rows   words [R][num_steps], `stride` words apart
//
// Each output is one chain of multiply-adds in the order of the words, whatever R is. A row's result
// therefore has the same bits alone, in a batch, in a chunk: prefill and decode agree.
#pragma once

#include <type_traits>

#include "element.h"

namespace splitserve {

constexpr int kPanel = 32;
// 24 accumulators of 32 registers; where vectors are halves, 8 of 16, for 16 columns at a time.
constexpr int kMaxRows = kIsWide ? 12 : 4;
constexpr int kPrefetchSteps = 24;  // 3 KB ahead hides a DRAM access behind the panel's stream

// Sixteen of the columns.
template <class E, int R>
inline void multiply_half_tile(const Word* rows, int64_t stride, const Word* panel,
                               int64_t num_steps, __m512 (&sums)[R][2], int half) {
  __m512 some[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) some[r] = sums[r][half];
  for (int64_t step = 0; step < num_steps; ++step) {
    const Word* columns = panel + step * kPanel + 16 * half;
    _mm_prefetch(reinterpret_cast<const char*>(columns + kPrefetchSteps * kPanel), _MM_HINT_T0);
    const __m512i words = _mm512_loadu_si512(columns);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
      some[r] = E::multiply_add(some[r], words, _mm512_set1_epi32(rows[r * stride + step]));
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r][half] = some[r];
}

template <class E, int R>
inline void multiply_tile(const Word* rows, int64_t stride, const Word* panel, int64_t num_steps,
                          __m512 (&sums)[R][2]) {
  if constexpr (!kIsWide && R > 2) {
    for (int half = 0; half < 2; ++half)
      multiply_half_tile<E>(rows, stride, panel, num_steps, sums, half);
    return;
  }
  for (int64_t step = 0; step < num_steps; ++step) {
    const Word* columns = panel + step * kPanel;
    const __m512i left = _mm512_loadu_si512(columns);
    const __m512i right = _mm512_loadu_si512(columns + 16);
    _mm_prefetch(reinterpret_cast<const char*>(columns + kPrefetchSteps * kPanel), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(columns + kPrefetchSteps * kPanel + 16),
                 _MM_HINT_T0);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512i value = _mm512_set1_epi32(rows[r * stride + step]);
      sums[r][0] = E::multiply_add(sums[r][0], left, value);
      sums[r][1] = E::multiply_add(sums[r][1], right, value);
    }
  }
}

// Calls body(std::integral_constant<int, count>) for a count of 1 to Max, which is 12 or less.
template <int Max = kMaxRows, class Body>
inline void with_row_count(int count, Body&& body) {
#define SPLITSERVE_CASE(n)                                          \
  case n:                                                           \
    if constexpr (n <= Max) body(std::integral_constant<int, n>{}); \
    break
  switch (count) {
    SPLITSERVE_CASE(1);
    SPLITSERVE_CASE(2);
    SPLITSERVE_CASE(3);
    SPLITSERVE_CASE(4);
    SPLITSERVE_CASE(5);
    SPLITSERVE_CASE(6);
    SPLITSERVE_CASE(7);
    SPLITSERVE_CASE(8);
    SPLITSERVE_CASE(9);
    SPLITSERVE_CASE(10);
    SPLITSERVE_CASE(11);
    SPLITSERVE_CASE(12);
  }
#undef SPLITSERVE_CASE
}

// Splits `count` rows into parts of nearly equal size, at most Max each: body(first, size).
template <int Max = kMaxRows, class Body>
inline void for_row_parts(int64_t count, Body&& body) {
  const int64_t parts = (count + Max - 1) / Max;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = count * part / parts;
    body(first, static_cast<int>(count * (part + 1) / parts - first));
  }
}

}  // namespace splitserve
