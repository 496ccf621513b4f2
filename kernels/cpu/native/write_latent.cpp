// Norms a token's latent, rotates its shared key, writes both to the token's slot of the pool, and
// rotates the last columns of its queries in place. A row's arithmetic depends on nothing else.
#include <cmath>

#include "element.h"
#include "parallel.h"

namespace splitserve {
namespace {

constexpr int64_t kRowsPerTask = 4;

struct WriteLatent {
  void* query;  // [num_rows][num_heads][rank + rope_dim]
  const void* latent;
  int64_t latent_stride;  // values
  const float* norm;      // [rank]
  float eps;
  const float* cos_sin;  // [max_context][2][rope_dim / 2]
  const int64_t* positions;
  const int64_t* slots;
  void* kv_layer;
  int64_t block_stride, num_rows, num_heads, block_size, rank, rope_dim;
};

template <class E>
void rotate(const typename E::Value* from, typename E::Value* to, const float* cos, int64_t half) {
  const float* sin = cos + half;
  for (int64_t i = 0; i < half; i += 16) {
    const __mmask16 mask = first_lanes(half - i);
    const __m512 low = E::load_some(from + i, mask), high = E::load_some(from + half + i, mask);
    const __m512 c = _mm512_maskz_loadu_ps(mask, cos + i), s = _mm512_maskz_loadu_ps(mask, sin + i);
    E::store_some(to + i, _mm512_fnmadd_ps(high, s, _mm512_mul_ps(low, c)), mask);
    E::store_some(to + half + i, _mm512_fmadd_ps(low, s, _mm512_mul_ps(high, c)), mask);
  }
}

template <class E>
void norm(const WriteLatent& job, const typename E::Value* from, typename E::Value* to) {
  __m512 squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < job.rank; i += 16) {
    const __m512 values = E::load_some(from + i, first_lanes(job.rank - i));
    squares = _mm512_fmadd_ps(values, values, squares);
  }
  const float mean = _mm512_reduce_add_ps(squares) / static_cast<float>(job.rank);
  const __m512 scale = _mm512_set1_ps(1.0f / std::sqrt(mean + job.eps));
  for (int64_t i = 0; i < job.rank; i += 16) {
    const __mmask16 mask = first_lanes(job.rank - i);
    const __m512 scaled = _mm512_mul_ps(E::load_some(from + i, mask), scale);
    E::store_some(to + i, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(mask, job.norm + i)), mask);
  }
}

template <class E>
void write_row(const WriteLatent& job, int64_t row) {
  using Value = typename E::Value;
  const int64_t rank = job.rank, dim = rank + job.rope_dim, half = job.rope_dim / 2;
  const float* cos = job.cos_sin + job.positions[row] * job.rope_dim;
  const int64_t block = job.slots[row] / job.block_size, offset = job.slots[row] % job.block_size;
  const Value* latent = static_cast<const Value*>(job.latent) + row * job.latent_stride;
  Value* kept = static_cast<Value*>(job.kv_layer) + block * job.block_stride + offset * dim;
  norm<E>(job, latent, kept);
  rotate<E>(latent + rank, kept + rank, cos, half);
  Value* head = static_cast<Value*>(job.query) + row * job.num_heads * dim + rank;
  for (int64_t h = 0; h < job.num_heads; ++h, head += dim) rotate<E>(head, head, cos, half);
}

template <class E>
void write_latent(const WriteLatent& job, int num_threads) {
  parallel_for((job.num_rows + kRowsPerTask - 1) / kRowsPerTask, num_threads, [&](int64_t task) {
    const int64_t end = task * kRowsPerTask + kRowsPerTask;
    for (int64_t row = task * kRowsPerTask; row < (end < job.num_rows ? end : job.num_rows); ++row)
      write_row<E>(job, row);
  });
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_write_latent(int32_t dtype, void* query, const void* latent,
                                        int64_t latent_stride, const float* norm, float eps,
                                        const float* cos_sin, const int64_t* positions,
                                        const int64_t* slots, void* kv_layer, int64_t block_stride,
                                        int64_t num_rows, int64_t num_heads, int64_t block_size,
                                        int64_t rank, int64_t rope_dim, int32_t num_threads) {
  using namespace splitserve;
  const WriteLatent job{query,    latent,       latent_stride, norm,      eps,
                        cos_sin,  positions,    slots,         kv_layer,  block_stride,
                        num_rows, num_heads,    block_size,    rank,      rope_dim};
  dtype == kFloat32 ? write_latent<Float32>(job, num_threads)
                    : write_latent<BFloat16>(job, num_threads);
}
