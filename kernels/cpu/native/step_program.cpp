// Runs a program, and fits the kernels to it: one `splitserve_run_...` per operation.
#include "step_program.h"

#include <cstring>
#include <type_traits>

#include "element.h"
#include "operations.h"
#include "stretch.h"
#include "tile.h"

namespace splitserve {
namespace {

struct PanelRows {
  const Word* panels;  // [num_rows / 32][num_steps][32], of the tokens from first_token on
  int64_t dtype, num_steps, num_rows, first_token, vocab_size, out;
};

struct RmsNorm {
  const float* weight;
  int64_t dtype, residual, branch, has_branch, hidden, out;
  float eps;
};

struct PanelLinear {
  const void* panels;
  const float* bias;
  int64_t dtype, out_dtype, x, num_steps, num_outputs, out;
};

struct RopeWriteKv {
  const float* cos_sin;
  int64_t dtype, qkv, layer, num_heads, num_kv_heads, head_dim;
};

struct PagedAttention {
  int64_t dtype, qkv, layer, num_heads, num_kv_heads, head_dim, window, out;
  float scale;
};

struct HeadNorm {
  const float* query_weight;
  const float* key_weight;
  int64_t dtype, qkv, num_heads, num_kv_heads, head_dim;
  float eps;
};

struct GatedMul {
  int64_t activation, dtype, gate_up, inner, out;
};

struct ScaleRows {
  int64_t rows, width;
  float scale;
};

struct ZeroRows {
  int64_t rows, row_bytes;
};

// Mirrors kernels/tape/collective.py: the ranks and how they meet are not this library's.
using AddRanks = int32_t (*)(void* context, int32_t type, const void* values, void* out,
                             int64_t count);
using NextTray = char* (*)(void* context, int64_t num_bytes);
using GatherRows = int32_t (*)(void* context, int64_t root, const void* rows, int64_t num_rows,
                               int64_t row_bytes, void* out);

struct AllReduce {
  AddRanks add;
  void* context;
  int64_t type, rows, out, width;
};

struct ShowRows {
  NextTray tray;
  void* context;
  int64_t place, row_bytes, instead;
};

struct GatherLogits {
  GatherRows gather;
  void* context;
  int64_t root, is_root, row_bytes;
};

struct SelectRows {
  int64_t source, target, row_bytes;
};

struct LeaveRows {
  int64_t source, target, row_bytes;
};

// One row of an embedding whose words lie 32 apart: float32 out.
void widen_row(const Word* words, int64_t num_steps, int64_t dtype, float* out) {
  for (int64_t step = 0; step < num_steps; ++step) {
    const uint32_t word = static_cast<uint32_t>(words[step * kPanel]);
    const uint32_t low = word << 16, high = word & 0xffff0000u;
    if (dtype == kFloat32) {
      std::memcpy(out + step, &word, 4);
    } else {
      std::memcpy(out + 2 * step, &low, 4);
      std::memcpy(out + 2 * step + 1, &high, 4);
    }
  }
}

template <class Record>
const Record& as(const void* record) {
  return *static_cast<const Record*>(record);
}

}  // namespace
}  // namespace splitserve

using namespace splitserve;

extern "C" void splitserve_run_panel_rows(const void* record, Run& run) {
  const auto& op = as<PanelRows>(record);
  const int64_t width = op.dtype == kFloat32 ? op.num_steps : 2 * op.num_steps;
  for (int64_t row = 0; row < run.num_rows; ++row) {
    const int64_t token = run.step.token_ids[row], id = token - op.first_token;
    float* out = run.at<float>(op.out) + row * width;
    if (token < 0 || token >= op.vocab_size)
      ++run.step.num_unknown_tokens;
    else if (id < 0 || id >= op.num_rows)
      std::memset(out, 0, width * sizeof(float));
    else
      widen_row(op.panels + (id / kPanel * op.num_steps) * kPanel + id % kPanel, op.num_steps,
                op.dtype, out);
  }
}

extern "C" void splitserve_run_rms_norm(const void* record, Run& run) {
  const auto& op = as<RmsNorm>(record);
  const void* branch = op.has_branch ? run.at<void>(op.branch) : nullptr;
  splitserve_rms_norm(static_cast<int32_t>(op.dtype), branch, run.at<float>(op.residual), op.weight,
                      op.eps, run.num_rows, op.hidden, run.at<void>(op.out), run.num_threads);
}

extern "C" void splitserve_run_panel_linear(const void* record, Run& run) {
  const auto& op = as<PanelLinear>(record);
  const int64_t stride = op.out == kLogitsPlace ? run.step.logits_stride : op.num_outputs;
  splitserve_linear(static_cast<int32_t>(op.dtype), static_cast<int32_t>(op.out_dtype),
                    run.at<void>(op.x), run.num_rows, op.num_steps, op.num_steps, op.panels,
                    op.num_outputs, op.bias, run.at<void>(op.out), stride, run.num_threads);
}

extern "C" void splitserve_run_rope_write_kv(const void* record, Run& run) {
  const auto& op = as<RopeWriteKv>(record);
  const Step& step = run.step;
  splitserve_rope_write_kv(static_cast<int32_t>(op.dtype), run.kv_dtype(), run.at<void>(op.qkv),
                           op.cos_sin, step.positions + run.first_row, step.slots + run.first_row,
                           run.kv_layer(op.layer),
                           step.kv_block_stride, run.num_rows, op.num_heads, op.num_kv_heads,
                           step.kv_block_size, op.head_dim, run.num_threads);
}

extern "C" void splitserve_run_paged_attention(const void* record, Run& run) {
  const auto& op = as<PagedAttention>(record);
  const Step& step = run.step;
  splitserve_paged_attention(
      static_cast<int32_t>(op.dtype), run.kv_dtype(), run.at<void>(op.qkv),
      (op.num_heads + 2 * op.num_kv_heads) * op.head_dim, run.kv_layer(op.layer),
      step.kv_block_stride, step.query_starts, step.context_lens, step.block_tables,
      step.max_blocks, step.num_seqs, op.num_heads, op.num_kv_heads, step.kv_block_size,
      op.head_dim, op.scale, op.window, run.at<void>(op.out), run.num_threads);
}

extern "C" void splitserve_run_head_norm(const void* record, Run& run) {
  const auto& op = as<HeadNorm>(record);
  splitserve_head_norm(static_cast<int32_t>(op.dtype), run.at<void>(op.qkv), op.query_weight,
                       op.key_weight, op.eps, run.num_rows, op.num_heads, op.num_kv_heads,
                       op.head_dim, run.num_threads);
}

extern "C" void splitserve_run_gated_mul(const void* record, Run& run) {
  const auto& op = as<GatedMul>(record);
  splitserve_gated_mul(static_cast<int32_t>(op.activation), static_cast<int32_t>(op.dtype),
                       run.at<void>(op.gate_up), run.num_rows, op.inner, run.at<void>(op.out),
                       run.num_threads);
}

extern "C" void splitserve_run_scale_rows(const void* record, Run& run) {
  const auto& op = as<ScaleRows>(record);
  auto* values = run.at<float>(op.rows);
  for (int64_t i = 0; i < run.num_rows * op.width; ++i) values[i] *= op.scale;
}

extern "C" void splitserve_run_zero_rows(const void* record, Run& run) {
  const auto& op = as<ZeroRows>(record);
  std::memset(run.at<void>(op.rows), 0, run.num_rows * op.row_bytes);
}

extern "C" void splitserve_run_all_reduce(const void* record, Run& run) {
  const auto& op = as<AllReduce>(record);
  run.step.sum_outcome = op.add(op.context, static_cast<int32_t>(op.type), run.at<void>(op.rows),
                                run.at<void>(op.out), run.num_rows * op.width);
}

extern "C" void splitserve_run_show_rows(const void* record, Run& run) {
  const auto& op = as<ShowRows>(record);
  char* tray = op.tray(op.context, run.num_rows * op.row_bytes);
  run.places[op.place] = tray == nullptr ? run.places[op.instead] : tray;
}

// The root's own rows lie among those of all ranks already.
extern "C" void splitserve_run_gather_logits(const void* record, Run& run) {
  const auto& op = as<GatherLogits>(record);
  char* own = run.at<char>(kLogitsPlace);
  run.step.sum_outcome =
      op.gather(op.context, op.root, op.is_root ? nullptr : own, run.step.num_logits, op.row_bytes,
                op.is_root ? own - op.root * op.row_bytes : nullptr);
}

extern "C" void splitserve_run_select_rows(const void* record, Run& run) {
  const auto& op = as<SelectRows>(record);
  for (int64_t row = 0; row < run.step.num_logits; ++row)
    std::memcpy(run.at<char>(op.target) + row * op.row_bytes,
                run.at<char>(op.source) + run.step.logit_rows[row] * op.row_bytes, op.row_bytes);
}

extern "C" void splitserve_run_leave_rows(const void* record, Run& run) {
  const auto& op = as<LeaveRows>(record);
  std::memcpy(run.at<char>(op.target), run.at<char>(op.source), run.num_rows * op.row_bytes);
}

// From here on there are only the rows whose logits are wanted.
extern "C" void splitserve_run_keep_wanted(const void*, Run& run) {
  run.num_rows = run.step.num_logits;
}

extern "C" void splitserve_run_program(const Program* program, Step* step) {
  step->num_unknown_tokens = step->sum_outcome = 0;
  Run run{*step, 0, step->num_tokens, static_cast<int32_t>(step->num_threads), {}};
  char* memory = step->workspace;
  for (int64_t place = 0; place < program->num_places; ++place) {
    run.places[place] = memory;
    if (place == kLogitsPlace)
      run.places[place] = reinterpret_cast<char*>(step->logits);
    else if (!program->places[place].is_lent)
      memory += program->places[place].row_bytes * step->capacity_rows;
  }
  // All ranks have the same tokens: where one is unknown, no rank comes to a sum.
  const auto goes_on = [&] { return step->sum_outcome == 0 && step->num_unknown_tokens == 0; };
  for (int64_t i = 0; i < program->num_operations && goes_on();) {
    const int64_t end = end_of_stretch(*program, i);
    if (end > i) {
      run_stretch(*program, i, end, run);
      i = end;
    } else {
      program->operations[i].operate(program->operations[i].record, run);
      ++i;
    }
  }
}
