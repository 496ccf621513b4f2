// What the library exports, for callers inside it. Each kernel's file includes this, so that the
// compiler compares its definition with the declaration here.
#pragma once

#include <cstdint>

namespace splitserve {
struct GroupedMatrix;

constexpr int32_t kSilu = 0;  // of splitserve_gated_mul; anything else is GELU by its tanh formula
}  // namespace splitserve

extern "C" {

void splitserve_linear(int32_t dtype, int32_t out_dtype, const void* x, int64_t num_rows,
                       int64_t num_steps, int64_t x_stride_words, const void* panels,
                       int64_t num_outputs, const float* bias, void* out, int64_t out_stride,
                       int32_t num_threads);

// Only where the CPU multiplies bytes (AVX-512 with VNNI, AVX2); see byte_products.h.
void splitserve_grouped_linear(int32_t dtype, int32_t out_dtype, const void* x, int64_t num_rows,
                               const splitserve::GroupedMatrix* matrix, void* out,
                               int64_t out_stride, int32_t num_threads);

void splitserve_grouped_rows(const splitserve::GroupedMatrix* matrix, const int64_t* ids,
                             int64_t num_ids, float* out, int32_t num_threads);

void splitserve_rms_norm(int32_t dtype, const void* branch, float* residual, const float* weight,
                         float eps, int64_t num_rows, int64_t hidden, void* out,
                         int32_t num_threads);

void splitserve_gated_mul(int32_t activation, int32_t dtype, const void* gate_up,
                          int64_t num_rows, int64_t inner, void* out, int32_t num_threads);

void splitserve_sigmoid(const float* values, int64_t count, float* out);

void splitserve_head_norm(int32_t dtype, void* qkv, const float* query_weight,
                          const float* key_weight, float eps, int64_t num_rows, int64_t num_heads,
                          int64_t num_kv_heads, int64_t head_dim, int32_t num_threads);

void splitserve_rope_write_kv(int32_t dtype, int32_t kv_dtype, void* qkv, const float* cos_sin,
                              const int64_t* positions, const int64_t* slots, void* kv_layer,
                              int64_t block_stride, int64_t num_rows, int64_t num_heads,
                              int64_t num_kv_heads, int64_t block_size, int64_t head_dim,
                              int32_t num_threads);

void splitserve_paged_attention(int32_t dtype, int32_t kv_dtype, const void* query,
                                int64_t query_stride, const void* kv_layer, int64_t block_stride,
                                const int32_t* query_starts, const int32_t* context_lens,
                                const int32_t* block_tables, int64_t max_blocks, int64_t num_seqs,
                                int64_t num_heads, int64_t num_kv_heads, int64_t block_size,
                                int64_t head_dim, float scale, int64_t window, void* out,
                                int32_t num_threads);

void splitserve_latent_attention(int32_t dtype, int32_t kv_dtype, const void* query,
                                 const void* kv_layer, int64_t block_stride,
                                 const int32_t* query_starts, const int32_t* context_lens,
                                 const int32_t* block_tables, int64_t max_blocks,
                                 int64_t num_seqs, int64_t num_heads, int64_t block_size,
                                 int64_t row_dim, int64_t value_dim, float scale, void* out,
                                 int32_t num_threads);

}  // extern "C"
