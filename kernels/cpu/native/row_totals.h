// Sums over some tokens of attention's rows, joined in the order of the tokens.
#pragma once

#include <vector>

#include "attention_tiles.h"
#include "online_softmax.h"

namespace splitserve {

// Sums over some tokens of a row: weights, and weighted values [columns] beside it.
struct RowTotal {
  float max, sum;
};

inline int64_t columns_of(const Attention& job) { return (job.value_dim + 15) / 16 * 16; }

// Adds what comes later in the sequence to a row's total.
inline void join(RowTotal& total, float* sums, const RowTotal& later, const float* later_sums,
                 int64_t columns) {
  if (later.max == kNothingSeen) return;
  if (total.max == kNothingSeen) {
    total = later;
    for (int64_t i = 0; i < columns; i += 16)
      _mm512_storeu_ps(sums + i, _mm512_loadu_ps(later_sums + i));
    return;
  }
  const float top = std::max(total.max, later.max);
  const __m512 maxima = _mm512_mask_mov_ps(_mm512_set1_ps(later.max), 1, _mm512_set1_ps(total.max));
  const __m512 decays = power_of_two(_mm512_sub_ps(maxima, _mm512_set1_ps(top)));
  const __m512 a = _mm512_broadcastss_ps(_mm512_castps512_ps128(decays));
  const __m512 b = _mm512_permute_ps(_mm512_shuffle_f32x4(decays, decays, 0xff), 0xff);
  total = {top, _mm512_cvtss_f32(_mm512_fmadd_ps(_mm512_set1_ps(later.sum), b,
                                                 _mm512_mul_ps(_mm512_set1_ps(total.sum), a)))};
  for (int64_t i = 0; i < columns; i += 16) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(sums + i), a);
    _mm512_storeu_ps(sums + i, _mm512_fmadd_ps(_mm512_loadu_ps(later_sums + i), b, scaled));
  }
}

// Rows of a tile, in the order of its KV heads, queries and heads of a group -> the output.
template <class E>
void write_rows(const Attention& job, const Tile& tile, const RowTotal* totals, const float* sums) {
  const int64_t group = job.group(), columns = columns_of(job), dim = job.value_dim;
  const int64_t first_token = job.query_starts[tile.seq] + tile.first_query;
  auto* out = static_cast<typename E::Value*>(job.out);
  for (int64_t head = tile.first_head; head < tile.first_head + tile.num_heads; ++head)
    for (int64_t token = first_token; token < first_token + tile.num_queries; ++token) {
      auto* to = out + (token * job.num_heads + head * group) * dim;
      for (int64_t i = 0; i < group; ++i, to += dim, ++totals, sums += columns) {
        const __m512 scale = _mm512_set1_ps(1.0f / totals->sum);
        for (int64_t column = 0; column < dim; column += 16)
          E::store_some(to + column, _mm512_mul_ps(_mm512_loadu_ps(sums + column), scale),
                        first_lanes(dim - column));
      }
    }
}

// Sums of tiles that are one segment of several, [num_partial_rows].
struct Partials {
  std::vector<RowTotal> totals;
  std::vector<float> sums;  // [row][columns]
};

}  // namespace splitserve
