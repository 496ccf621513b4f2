// Causal attention over paged keys and values: tiles for threads, then the joins between them.
#include "operations.h"
#include "parallel.h"
#include "tile_attention.h"

namespace splitserve {
namespace {

template <class E>
void join_segments(const Attention& job, const Join& join_of, Partials& partials) {
  const Tile& tile = join_of.whole;
  const int64_t rows = tile.num_queries * job.group() * tile.num_heads;
  const int64_t columns = columns_of(job);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = tile.partial + row;
    for (int64_t i = 1; i < join_of.num_segments; ++i)
      join(partials.totals[first], &partials.sums[first * columns],
           partials.totals[first + i * rows], &partials.sums[(first + i * rows) * columns],
           columns);
  }
  write_rows<E>(job, tile, &partials.totals[tile.partial], &partials.sums[tile.partial * columns]);
}

template <class E>
void paged_attention(const Attention& job, int num_threads) {
  static thread_local Partials partials;
  Partials& shared = partials;
  const Plan plan = plan_attention(job, num_threads);
  shared.totals.resize(plan.num_partial_rows);
  shared.sums.resize(plan.num_partial_rows * columns_of(job));
  parallel_for(static_cast<int64_t>(plan.runs.size()), num_threads, [&](int64_t index) {
    static thread_local TileScratch<E> scratch;
    const TileRun& run = plan.runs[index];
    TileAttention<E>(job, shared, scratch).run(&plan.tiles[run.first], &plan.tiles[run.end - 1] + 1);
  });
  parallel_for(static_cast<int64_t>(plan.joins.size()), num_threads,
               [&](int64_t index) { join_segments<E>(job, plan.joins[index], shared); });
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_paged_attention(
    int32_t dtype, int32_t kv_dtype, const void* query, int64_t query_stride, const void* kv_layer,
    int64_t block_stride, const int32_t* query_starts, const int32_t* context_lens,
    const int32_t* block_tables, int64_t max_blocks, int64_t num_seqs, int64_t num_heads,
    int64_t num_kv_heads, int64_t block_size, int64_t head_dim, float scale, int64_t window,
    void* out, int32_t num_threads) {
  using namespace splitserve;
  const auto pool = static_cast<KvDtype>(kv_dtype);
  const KvLayer kv(kv_layer, pool, block_stride, num_kv_heads, block_size, head_dim,
                   dtype == kFloat32 ? 4 : 2);
  const Attention job{query,        query_stride, kv,         pool,
                      query_starts, context_lens, block_tables, max_blocks,
                      num_seqs,     num_heads,    num_kv_heads, head_dim,
                      head_dim,     scale,        window != kNoWindow ? window : kEverything, out};
  dtype == kFloat32 ? paged_attention<Float32>(job, num_threads)
                    : paged_attention<BFloat16>(job, num_threads);
}

// One KV head, whose rows are keys and, in their first `value_dim` columns, values.
extern "C" void splitserve_latent_attention(
    int32_t dtype, int32_t kv_dtype, const void* query, const void* kv_layer, int64_t block_stride,
    const int32_t* query_starts, const int32_t* context_lens, const int32_t* block_tables,
    int64_t max_blocks, int64_t num_seqs, int64_t num_heads, int64_t block_size, int64_t row_dim,
    int64_t value_dim, float scale, void* out, int32_t num_threads) {
  using namespace splitserve;
  const auto pool = static_cast<KvDtype>(kv_dtype);
  KvLayer kv(kv_layer, pool, block_stride, 1, block_size, row_dim, dtype == kFloat32 ? 4 : 2);
  kv.plane_stride = 0;
  const Attention job{query,        num_heads * row_dim, kv,           pool,
                      query_starts, context_lens,        block_tables, max_blocks,
                      num_seqs,     num_heads,           1,            row_dim,
                      value_dim,    scale,               kEverything,  out};
  dtype == kFloat32 ? paged_attention<Float32>(job, num_threads)
                    : paged_attention<BFloat16>(job, num_threads);
}
