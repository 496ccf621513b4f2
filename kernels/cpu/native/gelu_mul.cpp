// out = gelu(gate) * up by the tanh formula: gelu(x) = x * sigmoid(2 u),
// u = sqrt(2 / pi) * (x + 0.044715 x^3); a row of gate_up is [gate, up].
#include "gated.h"
#include "operations.h"

namespace splitserve {
namespace {

struct Gelu {
  static __m512 of(__m512 x) {
    const __m512 square = _mm512_mul_ps(x, x);
    const __m512 slope = _mm512_fmadd_ps(square, _mm512_set1_ps(2.0f * 0.79788456f * 0.044715f),
                                         _mm512_set1_ps(2.0f * 0.79788456f));
    return opened(x, _mm512_mul_ps(x, slope));
  }
};

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_gelu_mul(int32_t dtype, const void* gate_up, int64_t num_rows,
                                    int64_t inner, void* out, int32_t num_threads) {
  using namespace splitserve;
  auto* run = dtype == kFloat32 ? gated<Float32, Gelu> : gated<BFloat16, Gelu>;
  run(gate_up, num_rows, inner, out, num_threads);
}
