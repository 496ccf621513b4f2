// out = activation(gate) * up; a row of gate_up is [gate, up].
#pragma once

#include "element.h"
#include "parallel.h"

namespace splitserve {

constexpr int64_t kGatedRowsPerTask = 8;

// Activation: 16 floats -> 16 floats.
template <class E, class Activation>
void gated_row(const typename E::Value* gate, int64_t inner, typename E::Value* out) {
  const typename E::Value* up = gate + inner;
  for (int64_t i = 0; i < inner; i += 16) {
    const __mmask16 mask = first_lanes(inner - i);
    const __m512 value = Activation::of(E::load_some(gate + i, mask));
    E::store_some(out + i, _mm512_mul_ps(value, E::load_some(up + i, mask)), mask);
  }
}

template <class E, class Activation>
void gated(const void* gate_up, int64_t num_rows, int64_t inner, void* out, int num_threads) {
  using Value = typename E::Value;
  const int64_t num_tasks = (num_rows + kGatedRowsPerTask - 1) / kGatedRowsPerTask;
  parallel_for(num_tasks, num_threads, [&](int64_t task) {
    const int64_t end = task * kGatedRowsPerTask + kGatedRowsPerTask;
    for (int64_t row = task * kGatedRowsPerTask; row < (end < num_rows ? end : num_rows); ++row)
      gated_row<E, Activation>(static_cast<const Value*>(gate_up) + row * 2 * inner, inner,
                               static_cast<Value*>(out) + row * inner);
  });
}

// x / (1 + e^-z), the value x of a gate that opens with z.
inline __m512 opened(__m512 x, __m512 z) {
  const __m512 decay = exponential(_mm512_sub_ps(_mm512_setzero_ps(), z));
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), decay));
}

}  // namespace splitserve
