// out = activation(gate) * up; a row of gate_up is [gate, up].
#include "element.h"
#include "operations.h"
#include "parallel.h"

namespace splitserve {
namespace {

constexpr int64_t kRowsPerTask = 8;

// x / (1 + e^-z), the value x of a gate that opens with z.
__m512 opened(__m512 x, __m512 z) {
  const __m512 decay = exponential(_mm512_sub_ps(_mm512_setzero_ps(), z));
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), decay));
}

struct Silu {
  static __m512 of(__m512 x) { return opened(x, x); }
};

// By the tanh formula: gelu(x) = x * sigmoid(2 u), u = sqrt(2 / pi) * (x + 0.044715 x^3).
struct Gelu {
  static __m512 of(__m512 x) {
    const __m512 square = _mm512_mul_ps(x, x);
    const __m512 slope = _mm512_fmadd_ps(square, _mm512_set1_ps(2.0f * 0.79788456f * 0.044715f),
                                         _mm512_set1_ps(2.0f * 0.79788456f));
    return opened(x, _mm512_mul_ps(x, slope));
  }
};

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
  const int64_t num_tasks = (num_rows + kRowsPerTask - 1) / kRowsPerTask;
  parallel_for(num_tasks, num_threads, [&](int64_t task) {
    const int64_t end = task * kRowsPerTask + kRowsPerTask;
    for (int64_t row = task * kRowsPerTask; row < (end < num_rows ? end : num_rows); ++row)
      gated_row<E, Activation>(static_cast<const Value*>(gate_up) + row * 2 * inner, inner,
                               static_cast<Value*>(out) + row * inner);
  });
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_gated_mul(int32_t activation, int32_t dtype, const void* gate_up,
                                     int64_t num_rows, int64_t inner, void* out,
                                     int32_t num_threads) {
  using namespace splitserve;
  auto* run = activation == kSilu
                  ? (dtype == kFloat32 ? gated<Float32, Silu> : gated<BFloat16, Silu>)
                  : (dtype == kFloat32 ? gated<Float32, Gelu> : gated<BFloat16, Gelu>);
  run(gate_up, num_rows, inner, out, num_threads);
}
