// Activations as signed bytes with a scale per row and span of 32 inputs, made once per product. Spans
// of a row with outliers, which have most of the error, are fine: kept with 16 bits, as a sum of two
// such terms. Of products in float32, as logits are, every second span is.
//
// On SmolLM2-135M the mean KL divergence from float32 is 0.046 with a scale per row, 0.0067 per 64
// inputs, 0.0036 per 32. With the roundings imitated in float32, on another text, second terms bring
// it from 0.0025 to 0.0009; they are 2 % of the multiplications there.
#pragma once

#include <algorithm>

#include "grouped_matrix.h"

namespace splitserve {

// Which spans of a row are fine: those of the largest scales, at most one of `one_in`, and only where
// the scale is `least` times the mean of the row's.
struct FineSpans {
  int64_t one_in;
  float least;
};

constexpr FineSpans kFineLogits{2, 0.0f}, kFineBranches{8, 4.0f};

// A span in a panel of the matrix: bytes to its group's scales and to its values.
struct Place {
  int32_t scales, values;
};

// A row is one run of bytes: what there is per span, then what there is per fine span.
class QuantizedRows {
 public:
  QuantizedRows(const GroupedMatrix& matrix, FineSpans fine, char* memory)
      : fine_(fine),
        most_fine_(std::max<int64_t>(1, matrix.num_spans() / fine.one_in)),
        scales_(matrix.num_inputs),
        offsets_(scales_ + matrix.num_spans() * 4),
        sums_(offsets_ + matrix.num_spans() * 4),
        fine_values_(sums_ + matrix.num_pairs() * 4),
        fine_scales_(fine_values_ + most_fine_ * kSpan),
        fine_offsets_(fine_scales_ + most_fine_ * 4),
        fine_places_(fine_offsets_ + most_fine_ * 4),
        fine_count_(fine_places_ + most_fine_ * sizeof(Place)),
        stride_((fine_count_ + 4 + 63) / 64 * 64),
        memory_(memory) {}

  int64_t stride() const { return stride_; }
  int64_t most_fine() const { return most_fine_; }
  float least_scale(float mean) const { return fine_.least * mean; }
  char* row(int64_t index) const { return memory_ + index * stride_; }
  int8_t* values(char* row) const { return reinterpret_cast<int8_t*>(row); }
  float* scales(char* row) const { return reinterpret_cast<float*>(row + scales_); }
  // What a dot product of a span begins with; see FloatScales and PairScales.
  int32_t* offsets(char* row) const { return reinterpret_cast<int32_t*>(row + offsets_); }
  // scale * (sum of the values) per group of the matrix, bfloat16; an odd count ends with zero.
  uint16_t* sums(char* row) const { return reinterpret_cast<uint16_t*>(row + sums_); }
  int8_t* fine_values(char* row) const { return reinterpret_cast<int8_t*>(row + fine_values_); }
  float* fine_scales(char* row) const { return reinterpret_cast<float*>(row + fine_scales_); }
  int32_t* fine_offsets(char* row) const { return reinterpret_cast<int32_t*>(row + fine_offsets_); }
  // Where the spans with second terms are, that of the largest scale first.
  Place* fine_places(char* row) const { return reinterpret_cast<Place*>(row + fine_places_); }
  int32_t* fine_count(char* row) const { return reinterpret_cast<int32_t*>(row + fine_count_); }

 private:
  FineSpans fine_;
  int64_t most_fine_;
  int64_t scales_, offsets_, sums_, fine_values_, fine_scales_, fine_offsets_, fine_places_;
  int64_t fine_count_, stride_;
  char* memory_;
};

}  // namespace splitserve
