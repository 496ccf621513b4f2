// Rotates Q (in place) and K of each token, and writes K and V to the token's slot of the pool.
#include <vector>

#include "operations.h"
#include "parallel.h"
#include "quantize_row.h"

namespace splitserve {
namespace {

constexpr int64_t kRowsPerTask = 16;

struct RopeWriteKv {
  void* qkv;
  const float* cos_sin;  // [max_context][2][half]
  const int64_t* positions;
  const int64_t* slots;
  char* pool;
  KvLayer kv;
  KvDtype kv_dtype;
  int64_t num_rows, num_heads, num_kv_heads, head_dim;
};

// `store(i, values, mask)` takes 16 rotated values from i on.
template <class E, class Store>
inline void rotate(const typename E::Value* from, const float* cos, int64_t half,
                   const Store& store) {
  const float* sin = cos + half;
  for (int64_t i = 0; i < half; i += 16) {
    const __mmask16 mask = first_lanes(half - i);
    const __m512 low = E::load_some(from + i, mask), high = E::load_some(from + half + i, mask);
    const __m512 c = _mm512_maskz_loadu_ps(mask, cos + i), s = _mm512_maskz_loadu_ps(mask, sin + i);
    store(i, _mm512_fnmadd_ps(high, s, _mm512_mul_ps(low, c)), mask);
    store(half + i, _mm512_fmadd_ps(low, s, _mm512_mul_ps(high, c)), mask);
  }
}

template <class E>
void rotate_to(const typename E::Value* from, typename E::Value* to, const float* cos,
               int64_t half) {
  rotate<E>(from, cos, half,
            [&](int64_t i, __m512 values, __mmask16 mask) { E::store_some(to + i, values, mask); });
}

// The rotated key and the value, quantized before they are rounded.
template <class E>
void write_quantized(const RopeWriteKv& job, const typename E::Value* key,
                     const typename E::Value* value, const float* cos, char* base,
                     int64_t offset) {
  static thread_local std::vector<float> row;
  const int64_t dim = job.head_dim;
  row.resize(dim);
  const auto write = [&](char* plane) {
    float* scales = reinterpret_cast<float*>(plane + job.kv.values_bytes);
    quantize_row(row.data(), dim, job.kv_dtype, plane + offset * dim, scales + offset);
  };
  rotate<E>(key, cos, dim / 2, [&](int64_t i, __m512 values, __mmask16 mask) {
    _mm512_mask_storeu_ps(&row[i], mask, values);
  });
  write(base);
  for (int64_t i = 0; i < dim; i += 16) {
    const __mmask16 mask = first_lanes(dim - i);
    _mm512_mask_storeu_ps(&row[i], mask, E::load_some(value + i, mask));
  }
  write(base + job.kv.plane_stride);
}

template <class E>
void rope_row(const RopeWriteKv& job, int64_t row) {
  using Value = typename E::Value;
  const int64_t dim = job.head_dim, width = (job.num_heads + 2 * job.num_kv_heads) * dim;
  const float* cos = job.cos_sin + job.positions[row] * dim;
  const int64_t block = job.slots[row] / job.kv.block_size, offset = job.slots[row] % job.kv.block_size;
  Value* head = static_cast<Value*>(job.qkv) + row * width;
  for (int64_t h = 0; h < job.num_heads; ++h, head += dim) rotate_to<E>(head, head, cos, dim / 2);
  char* base = job.pool + block * job.kv.block_stride;
  for (int64_t h = 0; h < job.num_kv_heads; ++h, head += dim, base += job.kv.head_stride) {
    const Value* value = head + job.num_kv_heads * dim;
    if (job.kv_dtype != kKvPlain) {
      write_quantized<E>(job, head, value, cos, base, offset);
      continue;
    }
    char* key = base + offset * job.kv.row_bytes;
    rotate_to<E>(head, reinterpret_cast<Value*>(key), cos, dim / 2);
    __builtin_memcpy(key + job.kv.plane_stride, value, job.kv.row_bytes);
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

extern "C" void splitserve_rope_write_kv(int32_t dtype, int32_t kv_dtype, void* qkv,
                                         const float* cos_sin, const int64_t* positions,
                                         const int64_t* slots, void* kv_layer,
                                         int64_t block_stride, int64_t num_rows, int64_t num_heads,
                                         int64_t num_kv_heads, int64_t block_size,
                                         int64_t head_dim, int32_t num_threads) {
  using namespace splitserve;
  const auto pool = static_cast<KvDtype>(kv_dtype);
  const KvLayer kv(kv_layer, pool, block_stride, num_kv_heads, block_size, head_dim,
                   dtype == kFloat32 ? 4 : 2);
  const RopeWriteKv job{qkv, cos_sin, positions, slots,        static_cast<char*>(kv_layer),
                        kv,  pool,    num_rows,  num_heads, num_kv_heads, head_dim};
  dtype == kFloat32 ? rope_write_kv<Float32>(job, num_threads)
                    : rope_write_kv<BFloat16>(job, num_threads);
}
