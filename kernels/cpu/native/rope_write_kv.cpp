// Rotates Q (in place) and K of each token, and writes K and V to the token's slot of the pool.
#include "element.h"
#include "operations.h"
#include "parallel.h"

namespace splitserve {
namespace {

constexpr int64_t kRowsPerTask = 16;

struct RopeWriteKv {
  void* qkv;
  const float* cos_sin;  // [max_context][2][half]
  const int64_t* positions;
  const int64_t* slots;
  void* kv_layer;
  int64_t block_stride, num_rows, num_heads, num_kv_heads, block_size, head_dim;
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
void rope_row(const RopeWriteKv& job, int64_t row) {
  using Value = typename E::Value;
  const int64_t dim = job.head_dim, width = (job.num_heads + 2 * job.num_kv_heads) * dim;
  const float* cos = job.cos_sin + job.positions[row] * dim;
  const int64_t block = job.slots[row] / job.block_size, offset = job.slots[row] % job.block_size;
  Value* head = static_cast<Value*>(job.qkv) + row * width;
  for (int64_t h = 0; h < job.num_heads; ++h, head += dim) rotate<E>(head, head, cos, dim / 2);
  Value* keys = static_cast<Value*>(job.kv_layer) + block * job.block_stride + offset * dim;
  Value* values = keys + job.num_kv_heads * job.block_size * dim;
  for (int64_t h = 0; h < job.num_kv_heads; ++h, head += dim) {
    const int64_t at = h * job.block_size * dim;
    rotate<E>(head, keys + at, cos, dim / 2);
    __builtin_memcpy(values + at, head + job.num_kv_heads * dim, dim * sizeof(Value));
  }
}

template <class E>
void rope_write_kv(const RopeWriteKv& job, int num_threads) {
  parallel_for((job.num_rows + kRowsPerTask - 1) / kRowsPerTask, num_threads, [&](int64_t task) {
    const int64_t end = task * kRowsPerTask + kRowsPerTask;
    for (int64_t row = task * kRowsPerTask; row < (end < job.num_rows ? end : job.num_rows); ++row)
      rope_row<E>(job, row);
  });
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_rope_write_kv(int32_t dtype, void* qkv, const float* cos_sin,
                                         const int64_t* positions, const int64_t* slots,
                                         void* kv_layer, int64_t block_stride, int64_t num_rows,
                                         int64_t num_heads, int64_t num_kv_heads,
                                         int64_t block_size, int64_t head_dim,
                                         int32_t num_threads) {
  using namespace splitserve;
  const RopeWriteKv job{qkv,      cos_sin,   positions,    slots,      kv_layer, block_stride,
                        num_rows, num_heads, num_kv_heads, block_size, head_dim};
  dtype == kFloat32 ? rope_write_kv<Float32>(job, num_threads)
                    : rope_write_kv<BFloat16>(job, num_threads);
}
