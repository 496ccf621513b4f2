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
  const int32_t* adapters;      // [num_tokens]: slots; null where no row has one
  char* kv;
  int64_t kv_layer_stride;  // bytes
  int64_t kv_block_stride;  // elements
  int64_t kv_block_size;    // tokens
  int64_t kv_dtype;         // see kv_rows.h
  char* workspace;
  int64_t capacity_rows;  // that every place of the workspace has room for
  float* logits;  // this rank's; in a tray of the ranks' instead, where the program shows them there
  int64_t logits_stride;  // values from a row to the next, of products
  int64_t num_threads;
  int64_t num_unknown_tokens;  // out: token ids that the embedding does not have
  int64_t sum_outcome;         // out: of what the ranks did together last; anything but 0 has ended the step
};

// A step under way, or some rows of it.
struct Run {
  Step& step;
  int64_t first_row, num_rows;  // of all tokens, then of those whose logits are wanted
  int32_t num_threads;
  char* places[kMaxPlaces];  // the first of these rows

  template <class T>
  T* at(int64_t place) const {
    return reinterpret_cast<T*>(places[place]);
  }
  char* kv_layer(int64_t layer) const { return step.kv + layer * step.kv_layer_stride; }
  int32_t kv_dtype() const { return static_cast<int32_t>(step.kv_dtype); }
};

using Operate = void (*)(const void* record, Run& run);

struct Operation {
  Operate operate;
  const void* record;
  int64_t by_rows;  // whether a row's result depends on that row alone
};

struct Activations {
  int64_t row_bytes;
  int64_t is_local;  // whether no stretch leaves anything here for what follows; see stretch.h
  int64_t is_lent;   // whether an operation says where it lies: no part of the workspace
};

struct Program {
  const Operation* operations;
  int64_t num_operations;
  const Activations* places;
  int64_t num_places;
};

}  // namespace splitserve
