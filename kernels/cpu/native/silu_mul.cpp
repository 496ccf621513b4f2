// out = silu(gate) * up; a row of gate_up is [gate, up].
#include "gated.h"
#include "operations.h"

namespace splitserve {
namespace {

struct Silu {
  static __m512 of(__m512 x) { return opened(x, x); }
};

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_silu_mul(int32_t dtype, const void* gate_up, int64_t num_rows,
                                    int64_t inner, void* out, int32_t num_threads) {
  using namespace splitserve;
  auto* run = dtype == kFloat32 ? gated<Float32, Silu> : gated<BFloat16, Silu>;
  run(gate_up, num_rows, inner, out, num_threads);
}
