// A decoder's forward as a list of operations that is made once and run once per step.
//
// An operation is a function of this library and a record of its own: weights, widths, places. A
// place is memory for one kind of activation, [num_rows, width]; places live in a workspace that the
// caller keeps between steps. Mirrored in kernels/cpu/step_records.py.
#pragma once

#include <cstdint>

namespace splitserve {

constexpr int kMaxPlaces = 32;
constexpr int kLogitsPlace = 0;  // memory of the step's own, float32 [num_logits, vocab_size]

// What changes from step to step.
struct Step {
  int64_t num_tokens, num_seqs, num_logits, max_blocks;
  const int64_t* token_ids;     // [num_tokens]
  const int64_t* positions;     // [num_tokens]
  const int64_t* slots;         // [num_tokens]
  const int64_t* logit_rows;    // [num_logits]
  const int32_t* query_starts;  // [num_seqs + 1]
  const int32_t* context_lens;  // [num_seqs]
  const int32_t* block_tables;  // [num_seqs][max_blocks]
  char* kv;
  int64_t kv_layer_stride;  // bytes
  int64_t kv_block_stride;  // elements
  int64_t kv_block_size;    // tokens
  int64_t kv_dtype;         // see kv_rows.h
  char* workspace;
  int64_t capacity_rows;  // that every place of the workspace has room for
  float* logits;
  int64_t num_threads;
  int64_t num_unknown_tokens;  // out: token ids that the embedding does not have
};

// A step under way.
struct Run {
  Step& step;
  int64_t num_rows;  // of activations: all tokens, then those whose logits are wanted
  char* places[kMaxPlaces];

  template <class T>
  T* at(int64_t place) const {
    return reinterpret_cast<T*>(places[place]);
  }
  char* kv_layer(int64_t layer) const { return step.kv + layer * step.kv_layer_stride; }
  int32_t kv_dtype() const { return static_cast<int32_t>(step.kv_dtype); }
  int32_t num_threads() const { return static_cast<int32_t>(step.num_threads); }
};

using Operate = void (*)(const void* record, Run& run);

struct Operation {
  Operate operate;
  const void* record;
};

struct Program {
  const Operation* operations;
  int64_t num_operations;
  const int64_t* row_bytes;  // [num_places]
  int64_t num_places;
};

}  // namespace splitserve
