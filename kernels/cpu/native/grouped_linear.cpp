// out = x * weight^T + bias for a matrix of low-bit groups, the activations rounded to bytes.
//
// Per span of 32 inputs a dot product of bytes is exact in int32; it is scaled and added in float32.
// One output is one chain in the order of the spans, then of the fine ones, whatever the number of
// rows and threads is.
#include "vectors.h"

#ifdef SPLITSERVE_MULTIPLIES_BYTES

#include "byte_products.h"
#include "operations.h"
#include "parallel.h"
#include "quantized_rows.h"
#include "row_quantizer.h"
#include "scratch_memory.h"

namespace splitserve {
namespace {

// 12 sums of bytes and 12 of floats of 32 registers; 4 and 4 halves of 16.
constexpr int kTileRows = kIsWide ? 6 : 2;
constexpr int64_t kRowBlock = 192;     // rows whose bytes stay in the second-level cache
constexpr int64_t kRowsPerTask = 8;    // of the rounding to bytes
constexpr int kPrefetchBytes = 3072;  // see tile.h

struct Product {
  const GroupedMatrix& matrix;
  const QuantizedRows& x;
  int64_t num_rows;
  void* out;  // [num_rows][out_stride], the first num_outputs of each row
  int64_t out_stride;
};

// What a tile of many rows asks for while it multiplies: its share of the panel that comes next.
// (Tiles of few rows ask for what comes next in their own.) A step of 16 rows, all weights from
// memory: 8.5 ms without, 7.4 with.
struct NextPanel {
  const uint8_t* at;
  int64_t bytes_per_span;

  // For tile `index` of the `count` that take the panel before it.
  NextPanel(const GroupedMatrix& matrix, int64_t panel, int64_t index, int64_t count)
      : bytes_per_span((matrix.panel_bytes() / (matrix.num_spans() * count) / kLine + 1) * kLine) {
    at = matrix.panels + panel * matrix.panel_bytes() + index * bytes_per_span * matrix.num_spans();
  }

  void prefetch() {
    for (const uint8_t* end = at + bytes_per_span; at != end; at += kLine)
      _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1);
  }
};

// A tile's rows: the first one's data and the distance to the next, in bytes.
struct TileRows {
  const char *values, *scales, *offsets, *sums;
  const char *fine_values, *fine_scales, *fine_offsets, *fine_places, *fine_count;
  int64_t stride;

  TileRows(const QuantizedRows& rows, char* first)
      : values(first),
        scales(reinterpret_cast<const char*>(rows.scales(first))),
        offsets(reinterpret_cast<const char*>(rows.offsets(first))),
        sums(reinterpret_cast<const char*>(rows.sums(first))),
        fine_values(reinterpret_cast<const char*>(rows.fine_values(first))),
        fine_scales(reinterpret_cast<const char*>(rows.fine_scales(first))),
        fine_offsets(reinterpret_cast<const char*>(rows.fine_offsets(first))),
        fine_places(reinterpret_cast<const char*>(rows.fine_places(first))),
        fine_count(reinterpret_cast<const char*>(rows.fine_count(first))),
        stride(rows.stride()) {}

  __m512i every_lane(const char* from, int row, int64_t word) const {
    return _mm512_set1_epi32(reinterpret_cast<const Word*>(from + row * stride)[word]);
  }

  int64_t num_fine(int row) const {
    return *reinterpret_cast<const int32_t*>(fine_count + row * stride);
  }

  Place fine_place(int row, int64_t index) const {
    return reinterpret_cast<const Place*>(fine_places + row * stride)[index];
  }
};

template <int R>
inline void multiply_minimums(const TileRows& x, const Word* minimums, int64_t num_pairs,
                              __m512 (&sums)[R][2]) {
  for (int64_t pair = 0; pair < num_pairs; ++pair) {
    const __m512i left = _mm512_loadu_si512(minimums + pair * kPanel);
    const __m512i right = _mm512_loadu_si512(minimums + pair * kPanel + 16);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i value = x.every_lane(x.sums, r, pair);
      sums[r][0] = BFloat16::multiply_add(sums[r][0], left, value);
      sums[r][1] = BFloat16::multiply_add(sums[r][1], right, value);
    }
  }
}

template <class Values, int R>
inline void multiply_span(const TileRows& x, int64_t span, const uint8_t* values,
                          const typename Values::Scales& scales, __m512 (&sums)[R][2]) {
  SpanDots<Values> dots[R][2];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
    for (auto& half : dots[r]) half.begin(x.every_lane(x.offsets, r, span));
#pragma GCC unroll 8
  for (int step = 0; step < kSpanSteps; ++step) {
    const uint8_t* from = values + step * Values::kStepBytes;
    __m512i left, right;
    Values::load(from, left, right);
    for (int line = 0; R < 4 && line < Values::kStepBytes; line += 64)
      _mm_prefetch(reinterpret_cast<const char*>(from + kPrefetchBytes + line), _MM_HINT_T0);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const __m512i value = x.every_lane(x.values, r, span * kSpanSteps + step);
      dots[r][0].add(left, value);
      dots[r][1].add(right, value);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    const __m512 scale = _mm512_castsi512_ps(x.every_lane(x.scales, r, span));
    for (int half = 0; half < 2; ++half) {
      const __m512i dot = dots[r][half].total(x.every_lane(x.offsets, r, span));
      sums[r][half] = scales.add(sums[r][half], dot, scale, half);
    }
  }
}

template <class Values, int R>
inline void multiply_groups(const GroupedMatrix& matrix, const TileRows& x, const uint8_t* panel,
                            NextPanel next, __m512 (&sums)[R][2]) {
  const int64_t spans_per_group = matrix.group / kSpan;
  for (int64_t span = 0; span < matrix.num_spans();) {
    const typename Values::Scales scales(panel);
    _mm_prefetch(reinterpret_cast<const char*>(panel + kPrefetchBytes), _MM_HINT_T0);
    panel += Values::Scales::kBytes;
    for (const int64_t end = span + spans_per_group; span < end; ++span) {
      if (R >= 4) next.prefetch();
      multiply_span<Values>(x, span, panel, scales, sums);
      panel += kSpanSteps * Values::kStepBytes;
    }
  }
}

// The second term of one fine span of a row.
template <class Values>
inline __attribute__((always_inline)) void multiply_fine(const TileRows& x, int row, int64_t index,
                                                         const uint8_t* panel,
                                                         __m512 (&sums)[2]) {
  const Place place = x.fine_place(row, index);
  const typename Values::Scales scales(panel + place.scales);
  const uint8_t* values = panel + place.values;
  const __m512i first = x.every_lane(x.fine_offsets, row, index);
  SpanDots<Values> left_dots, right_dots;
  left_dots.begin(first);
  right_dots.begin(first);
#pragma GCC unroll 8
  for (int step = 0; step < kSpanSteps; ++step) {
    __m512i left, right;
    Values::load(values + step * Values::kStepBytes, left, right);
    const __m512i value = x.every_lane(x.fine_values, row, index * kSpanSteps + step);
    left_dots.add(left, value);
    right_dots.add(right, value);
  }
  const __m512 scale = _mm512_castsi512_ps(x.every_lane(x.fine_scales, row, index));
  sums[0] = scales.add(sums[0], left_dots.total(first), scale, 0);
  sums[1] = scales.add(sums[1], right_dots.total(first), scale, 1);
}

template <class Out>
void store_half(const Product& job, int64_t row, int64_t column, __m512 sum) {
  const GroupedMatrix& matrix = job.matrix;
  const __mmask16 mask = first_lanes(matrix.num_outputs - column);
  const __m512 factors = _mm512_loadu_ps(matrix.factors + column);
  // fused by hand, so that no compiler fuses them for one number of rows and not for another
  sum = matrix.bias ? _mm512_fmadd_ps(sum, factors, _mm512_maskz_loadu_ps(mask, matrix.bias + column))
                    : _mm512_mul_ps(sum, factors);
  auto* to = static_cast<typename Out::Value*>(job.out) + row * job.out_stride + column;
  Out::store_some(to, sum, mask);
}

template <class Values, class Out, int R>
void grouped_tile(const Product& job, int64_t row, int64_t panel, const NextPanel& next) {
  const GroupedMatrix& matrix = job.matrix;
  const TileRows x(job.x, job.x.row(row));
  __m512 sums[R][2];
  for (auto& pair : sums) pair[0] = pair[1] = _mm512_setzero_ps();
  if (matrix.minimums)
    multiply_minimums<R>(x, matrix.minimums + panel * matrix.num_pairs() * kPanel,
                         matrix.num_pairs(), sums);
  const uint8_t* values = matrix.panels + panel * matrix.panel_bytes();
  multiply_groups<Values, R>(matrix, x, values, next, sums);
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    for (int64_t i = 0; i < x.num_fine(r); ++i) multiply_fine<Values>(x, r, i, values, sums[r]);
    const int64_t column = panel * kPanel;
    store_half<Out>(job, row + r, column, sums[r][0]);
    if (column + 16 < matrix.num_outputs) store_half<Out>(job, row + r, column + 16, sums[r][1]);
  }
}

template <class Values, class Out>
void multiply(const Product& job, int num_threads) {
  const int64_t num_panels = job.matrix.num_panels();
  const int64_t num_blocks = (job.num_rows + kRowBlock - 1) / kRowBlock;
  const auto multiply_panel = [&](int64_t index) {
    const int64_t block = index / num_panels, panel = index % num_panels;
    const int64_t first = job.num_rows * block / num_blocks;
    const int64_t end = job.num_rows * (block + 1) / num_blocks;
    const int64_t num_parts = (end - first + kTileRows - 1) / kTileRows;
    int64_t part = 0;
    for_row_parts<kTileRows>(end - first, [&](int64_t offset, int count) {
      with_row_count<kTileRows>(count, [&](auto rows) {
        const NextPanel next(job.matrix, panel + 1, part++, num_parts);
        grouped_tile<Values, Out, rows()>(job, first + offset, panel, next);
      });
    });
  };
  parallel_for(num_blocks * num_panels, num_threads, multiply_panel, Claim::kInRuns);
}

template <class Values>
void multiply_to(const Product& job, bool is_float, int num_threads) {
  (is_float ? multiply<Values, Float32> : multiply<Values, BFloat16>)(job, num_threads);
}

template <class E>
void quantize(const GroupedMatrix& matrix, const QuantizedRows& rows, const void* x,
              int64_t num_rows, int num_threads) {
  parallel_for((num_rows + kRowsPerTask - 1) / kRowsPerTask, num_threads, [&](int64_t task) {
    const int64_t end = (task + 1) * kRowsPerTask;
    RowQuantizer quantizer(matrix, rows);
    for (int64_t row = task * kRowsPerTask; row < (end < num_rows ? end : num_rows); ++row)
      quantizer.quantize<E>(static_cast<const typename E::Value*>(x) + row * matrix.num_inputs,
                            rows.row(row));
  });
}

inline float half_to_float(uint16_t half) {
  return _mm_cvtss_f32(_mm_maskz_cvtph_ps(1, _mm_cvtsi32_si128(half)));
}

inline float bfloat16_to_float(uint32_t value) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int32_t>(value << 16))));
}

template <class Values>
void row_to_floats(const GroupedMatrix& matrix, int64_t index, float* out) {
  const int64_t panel = index / kPanel, output = index % kPanel;
  const uint8_t* from = matrix.panels + panel * matrix.panel_bytes();
  const Word* minimums = matrix.minimums + panel * matrix.num_pairs() * kPanel + output;
  for (int64_t group = 0; group < matrix.num_groups(); ++group) {
    float scale, minimum = 0.0f;
    if (matrix.is_paired) {
      const auto* pair = reinterpret_cast<const int16_t*>(from) + 2 * output;
      scale = pair[0];
      minimum = pair[1];
    } else {
      scale = half_to_float(reinterpret_cast<const uint16_t*>(from)[output]);
      if (matrix.minimums)
        minimum = bfloat16_to_float(minimums[group / 2 * kPanel] >> (group % 2 * 16) & 0xffff);
    }
    from += matrix.scale_bytes();
    for (int64_t input = 0; input < matrix.group; ++input) {
      const uint8_t* step = from + input / 4 * Values::kStepBytes;
      const int value = Values::value(step, output, input % 4) - matrix.centre();
      *out++ = matrix.factors[index] * (scale * static_cast<float>(value) + minimum);
    }
    from += matrix.group / 4 * Values::kStepBytes;
  }
}

}  // namespace
}  // namespace splitserve

using namespace splitserve;

extern "C" void splitserve_grouped_linear(int32_t dtype, int32_t out_dtype, const void* x,
                                          int64_t num_rows, const GroupedMatrix* matrix, void* out,
                                          int64_t out_stride, int32_t num_threads) {
  const bool is_float = out_dtype == kFloat32;
  const FineSpans fine = is_float ? kFineLogits : kFineBranches;
  thread_local ScratchMemory memory;
  const int64_t stride = QuantizedRows(*matrix, fine, nullptr).stride();
  const QuantizedRows rows(*matrix, fine, memory.fit(num_rows * stride));
  auto* prepare = dtype == kFloat32 ? quantize<Float32> : quantize<BFloat16>;
  prepare(*matrix, rows, x, num_rows, num_threads);
  const Product job{*matrix, rows, num_rows, out, out_stride};
  auto* run = matrix->is_paired    ? multiply_to<FourBitsInPairs>
              : matrix->bits == 4 ? multiply_to<FourBits>
                                  : multiply_to<EightBits>;
  run(job, is_float, num_threads);
}

extern "C" void splitserve_grouped_rows(const GroupedMatrix* matrix, const int64_t* ids,
                                        int64_t num_ids, float* out, int32_t num_threads) {
  auto* convert = matrix->bits == 4 ? row_to_floats<FourBits> : row_to_floats<EightBits>;
  parallel_for(num_ids, num_threads, [&](int64_t index) {
    convert(*matrix, ids[index], out + index * matrix->num_inputs);
  });
}

#endif
