// Matrices of low-bit groups as operations of a program. Mirrored in kernels/cpu/grouped_linear.py.
#include "vectors.h"

#ifdef SPLITSERVE_MULTIPLIES_BYTES

#include <cstring>

#include "grouped_matrix.h"
#include "operations.h"
#include "step_program.h"

namespace splitserve {
namespace {

struct GroupedRows {
  const GroupedMatrix* matrix;  // rows of the tokens from first_token on
  int64_t first_token, vocab_size, out;
};

struct GroupedLinear {
  const GroupedMatrix* matrix;
  int64_t dtype, out_dtype, x, out;
};

// Zeros for tokens of other parts.
void rows_of_part(const GroupedRows& op, Run& run) {
  const int64_t width = op.matrix->num_inputs;
  for (int64_t row = 0; row < run.num_rows; ++row) {
    const int64_t id = run.step.token_ids[row] - op.first_token;
    float* out = run.at<float>(op.out) + row * width;
    if (id < 0 || id >= op.matrix->num_outputs)
      std::memset(out, 0, width * sizeof(float));
    else
      splitserve_grouped_rows(op.matrix, &id, 1, out, 1);
  }
}

}  // namespace
}  // namespace splitserve

using namespace splitserve;

extern "C" void splitserve_run_grouped_rows(const void* record, Run& run) {
  const auto& op = *static_cast<const GroupedRows*>(record);
  for (int64_t row = 0; row < run.num_rows; ++row) {
    const int64_t id = run.step.token_ids[row];
    run.step.num_unknown_tokens += id < 0 || id >= op.vocab_size;
  }
  if (run.step.num_unknown_tokens) return;
  if (op.matrix->num_outputs < op.vocab_size)
    rows_of_part(op, run);
  else
    splitserve_grouped_rows(op.matrix, run.step.token_ids, run.num_rows, run.at<float>(op.out),
                            run.num_threads);
}

extern "C" void splitserve_run_grouped_linear(const void* record, Run& run) {
  const auto& op = *static_cast<const GroupedLinear*>(record);
  const int64_t stride = op.out == kLogitsPlace ? run.step.logits_stride : op.matrix->num_outputs;
  splitserve_grouped_linear(static_cast<int32_t>(op.dtype), static_cast<int32_t>(op.out_dtype),
                            run.at<void>(op.x), run.num_rows, op.matrix, run.at<void>(op.out),
                            stride, run.num_threads);
}

#endif
