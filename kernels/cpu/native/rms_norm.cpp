// residual += branch (when there is one); out = residual / rms(residual) * weight.
#include "element.h"
#include "operations.h"
#include "parallel.h"

namespace splitserve {
namespace {

constexpr int64_t kRowsPerTask = 16;

template <class E>
void norm_row(const typename E::Value* branch, float* residual, const float* weight, float eps,
              int64_t hidden, typename E::Value* out) {
  __m512 squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < hidden; i += 16) {
    const __mmask16 mask = first_lanes(hidden - i);
    __m512 value = _mm512_maskz_loadu_ps(mask, residual + i);
    if (branch) {
      value = _mm512_add_ps(value, E::load_some(branch + i, mask));
      _mm512_mask_storeu_ps(residual + i, mask, value);
    }
    squares = _mm512_fmadd_ps(value, value, squares);
  }
  const float mean = _mm512_reduce_add_ps(squares) / static_cast<float>(hidden);
  const __m512 scale = _mm512_set1_ps(1.0f / __builtin_sqrtf(mean + eps));
  for (int64_t i = 0; i < hidden; i += 16) {
    const __mmask16 mask = first_lanes(hidden - i);
    const __m512 value = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, residual + i), scale);
    E::store_some(out + i, _mm512_mul_ps(value, _mm512_maskz_loadu_ps(mask, weight + i)), mask);
  }
}

template <class E>
void rms_norm(const void* branch, float* residual, const float* weight, float eps, int64_t num_rows,
              int64_t hidden, void* out, int num_threads) {
  using Value = typename E::Value;
  parallel_for((num_rows + kRowsPerTask - 1) / kRowsPerTask, num_threads, [&](int64_t task) {
    const int64_t end = task * kRowsPerTask + kRowsPerTask;
    for (int64_t row = task * kRowsPerTask; row < (end < num_rows ? end : num_rows); ++row) {
      const int64_t at = row * hidden;
      norm_row<E>(branch ? static_cast<const Value*>(branch) + at : nullptr, residual + at, weight,
                  eps, hidden, static_cast<Value*>(out) + at);
    }
  });
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_rms_norm(int32_t dtype, const void* branch, float* residual,
                                    const float* weight, float eps, int64_t num_rows,
                                    int64_t hidden, void* out, int32_t num_threads) {
  using namespace splitserve;
  auto* run = dtype == kFloat32 ? rms_norm<Float32> : rms_norm<BFloat16>;
  run(branch, residual, weight, eps, num_rows, hidden, out, num_threads);
}
