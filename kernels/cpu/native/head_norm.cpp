// Each head of Q and of K, in place: head / rms(head) * weight. A row of qkv is all Q, then K, then V.
#include "element.h"
#include "operations.h"
#include "parallel.h"

namespace splitserve {
namespace {

constexpr int64_t kRowsPerTask = 8;

struct HeadNorm {
  void* qkv;
  const float* query_weight;  // [head_dim]
  const float* key_weight;    // [head_dim]
  float eps;
  int64_t num_rows, num_heads, num_kv_heads, head_dim;
};

template <class E>
void norm_head(typename E::Value* head, const float* weight, float eps, int64_t dim) {
  __m512 squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < dim; i += 16) {
    const __m512 value = E::load_some(head + i, first_lanes(dim - i));
    squares = _mm512_fmadd_ps(value, value, squares);
  }
  const float mean = _mm512_reduce_add_ps(squares) / static_cast<float>(dim);
  const __m512 scale = _mm512_set1_ps(1.0f / __builtin_sqrtf(mean + eps));
  for (int64_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = first_lanes(dim - i);
    const __m512 value = _mm512_mul_ps(E::load_some(head + i, mask), scale);
    E::store_some(head + i, _mm512_mul_ps(value, _mm512_maskz_loadu_ps(mask, weight + i)), mask);
  }
}

template <class E>
void norm_row(const HeadNorm& job, int64_t row) {
  const int64_t dim = job.head_dim, width = (job.num_heads + 2 * job.num_kv_heads) * dim;
  auto* head = static_cast<typename E::Value*>(job.qkv) + row * width;
  for (int64_t h = 0; h < job.num_heads; ++h, head += dim)
    norm_head<E>(head, job.query_weight, job.eps, dim);
  for (int64_t h = 0; h < job.num_kv_heads; ++h, head += dim)
    norm_head<E>(head, job.key_weight, job.eps, dim);
}

template <class E>
void head_norm(const HeadNorm& job, int num_threads) {
  parallel_for((job.num_rows + kRowsPerTask - 1) / kRowsPerTask, num_threads, [&](int64_t task) {
    const int64_t end = task * kRowsPerTask + kRowsPerTask;
    for (int64_t row = task * kRowsPerTask; row < (end < job.num_rows ? end : job.num_rows); ++row)
      norm_row<E>(job, row);
  });
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_head_norm(int32_t dtype, void* qkv, const float* query_weight,
                                     const float* key_weight, float eps, int64_t num_rows,
                                     int64_t num_heads, int64_t num_kv_heads, int64_t head_dim,
                                     int32_t num_threads) {
  using namespace splitserve;
  const HeadNorm job{qkv,      query_weight, key_weight,   eps,
                     num_rows, num_heads,    num_kv_heads, head_dim};
  dtype == kFloat32 ? head_norm<Float32>(job, num_threads) : head_norm<BFloat16>(job, num_threads);
}
