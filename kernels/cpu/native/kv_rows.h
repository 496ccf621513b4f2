// A layer of the KV pool as attention reads it: where a chunk's rows lie, in every dtype of a pool.
//
//   plain      (block, plane, head): rows [block_size][head_dim]
//   quantized  (block, plane, head): one-byte values [block_size][head_dim], float scales [block_size]
#pragma once

#include <algorithm>

#include "element.h"

namespace splitserve {

constexpr int64_t kChunk = 64;  // tokens, at fixed positions of a sequence

constexpr int64_t kNoWindow = 0;

enum KvDtype : int32_t { kKvPlain = 0, kKvInt8 = 1, kKvFp8 = 2 };

struct KvLayer {
  const char* memory;
  int64_t block_stride, plane_stride, head_stride, row_bytes, block_size, values_bytes;

  // Strides of the caller's are in elements of the pool; `item_bytes` is the size of one.
  KvLayer(const void* pool, KvDtype dtype, int64_t stride, int64_t num_heads, int64_t rows,
          int64_t head_dim, int64_t plain_bytes)
      : memory(static_cast<const char*>(pool)), block_size(rows) {
    const int64_t item_bytes = dtype == kKvPlain ? plain_bytes : 1;
    row_bytes = head_dim * item_bytes;
    values_bytes = rows * row_bytes;
    head_stride = values_bytes + (dtype == kKvPlain ? 0 : rows * sizeof(float));
    plane_stride = num_heads * head_stride;
    block_stride = stride * item_bytes;
  }
};

// Rows of a head that lie side by side in a block, and where their scales are.
struct RowRun {
  const char *memory, *scales;
  int64_t first, count;  // tokens of the chunk
};

// Rows of one head: those of tokens [start, start + kChunk) that count; others are `absent`.
class ChunkRows {
 public:
  const char* keys[kChunk];
  const char* values[kChunk];
  RowRun runs[kChunk];  // of keys; values and their scales lie `plane_stride` further
  int64_t num_runs = 0;

  // Tokens outside [first, end) are never read.
  void find(const KvLayer& kv, const int32_t* table, int64_t head, int64_t start, int64_t first,
            int64_t end, const char* absent) {
    const int64_t begin = std::max(first - start, int64_t{0}), stop = std::min(end - start, kChunk);
    num_runs = 0;
    for (int64_t i = 0; i < begin; ++i) keys[i] = values[i] = absent;
    for (int64_t i = stop; i < kChunk; ++i) keys[i] = values[i] = absent;
    const int64_t size = kv.block_size, token = start + begin;
    table += token / size;
    for (int64_t i = begin, offset = token % size; i < stop; ++table, offset = 0) {
      const int64_t count = std::min(size - offset, stop - i);
      const char* base = kv.memory + *table * kv.block_stride + head * kv.head_stride;
      const char* row = base + offset * kv.row_bytes;
      runs[num_runs++] = {row, base + kv.values_bytes + offset * sizeof(float), i, count};
      for (const int64_t last = i + count; i < last; ++i, row += kv.row_bytes) {
        keys[i] = row;
        values[i] = row + kv.plane_stride;
      }
    }
  }

  void prefetch_scales(const KvLayer& kv) const {
    for (int64_t i = 0; i < num_runs; ++i) {
      _mm_prefetch(runs[i].scales, _MM_HINT_T1);
      _mm_prefetch(runs[i].scales + kv.plane_stride, _MM_HINT_T1);
    }
  }

  // Scales of a quantized pool's rows; 0 for absent ones.
  void copy_scales(const KvLayer& kv, float* of_keys, float* of_values) const {
    std::fill_n(of_keys, kChunk, 0.0f);
    std::fill_n(of_values, kChunk, 0.0f);
    for (int64_t i = 0; i < num_runs; ++i) {
      const size_t bytes = runs[i].count * sizeof(float);
      __builtin_memcpy(of_keys + runs[i].first, runs[i].scales, bytes);
      __builtin_memcpy(of_values + runs[i].first, runs[i].scales + kv.plane_stride, bytes);
    }
  }
};

// The memory that comes next, asked for line by line while there is other work: a burst of hints is
// dropped by the processor, and a wait for each line leaves the memory idle.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const KvLayer& kv, const ChunkRows& chunk)
      : run_(chunk.runs), last_(chunk.runs + chunk.num_runs), kv_(&kv), step_(64) {
    go_on();
  }

  inline __attribute__((always_inline)) void take() {
    _mm_prefetch(at_, _MM_HINT_T1);
    at_ += step_;
    if (at_ >= end_) go_on();
  }

 private:
  inline __attribute__((always_inline)) void go_on() {
    if (at_values_) {  // after the keys of a run come its values
      at_ = run_->memory + kv_->plane_stride;
      end_ = at_ + run_->count * kv_->row_bytes;
      ++run_;
    } else if (run_ != last_) {
      at_ = run_->memory;
      end_ = at_ + run_->count * kv_->row_bytes;
    } else {
      at_ = kNowhere;
      end_ = reinterpret_cast<const char*>(~uintptr_t{0});
      step_ = 0;
    }
    at_values_ = !at_values_;
  }

  alignas(64) static inline const char kNowhere[64] = {};
  const char* at_ = kNowhere;
  const char* end_ = reinterpret_cast<const char*>(~uintptr_t{0});
  const RowRun *run_ = nullptr, *last_ = nullptr;
  const KvLayer* kv_ = nullptr;
  int64_t step_ = 0;
  bool at_values_ = false;
};

}  // namespace splitserve
