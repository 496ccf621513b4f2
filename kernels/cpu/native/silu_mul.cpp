// out = silu(gate) * up; a row of gate_up is [gate, up].
#include "element.h"
#include "parallel.h"

namespace splitserve {
namespace {

constexpr int64_t kRowsPerTask = 8;

template <class E>
void silu_mul_row(const typename E::Value* gate, int64_t inner, typename E::Value* out) {
  const typename E::Value* up = gate + inner;
  for (int64_t i = 0; i < inner; i += 16) {
    const __mmask16 mask = first_lanes(inner - i);
    const __m512 value = E::load_some(gate + i, mask);
    const __m512 decay = exponential(_mm512_sub_ps(_mm512_setzero_ps(), value));
    const __m512 silu = _mm512_div_ps(value, _mm512_add_ps(_mm512_set1_ps(1.0f), decay));
    E::store_some(out + i, _mm512_mul_ps(silu, E::load_some(up + i, mask)), mask);
  }
}

template <class E>
void silu_mul(const void* gate_up, int64_t num_rows, int64_t inner, void* out, int num_threads) {
  using Value = typename E::Value;
  parallel_for((num_rows + kRowsPerTask - 1) / kRowsPerTask, num_threads, [&](int64_t task) {
    const int64_t end = task * kRowsPerTask + kRowsPerTask;
    for (int64_t row = task * kRowsPerTask; row < (end < num_rows ? end : num_rows); ++row)
      silu_mul_row<E>(static_cast<const Value*>(gate_up) + row * 2 * inner, inner,
                      static_cast<Value*>(out) + row * inner);
  });
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_silu_mul(int32_t dtype, const void* gate_up, int64_t num_rows,
                                    int64_t inner, void* out, int32_t num_threads) {
  using namespace splitserve;
  auto* run = dtype == kFloat32 ? silu_mul<Float32> : silu_mul<BFloat16>;
  run(gate_up, num_rows, inner, out, num_threads);
}
