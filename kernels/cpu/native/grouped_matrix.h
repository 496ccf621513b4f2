// A matrix of 4-bit or 8-bit values with a scale and a minimum per output and group of inputs.
//
//   weight[o][i] = factor[o] * (scale[o][g] * (value[o][i] - centre) + minimum[o][g])
//
// in panels of 32 outputs. A panel is one stream, group after group:
//
//   scales  float16 [32]
//   values  [group / 4] steps, each of 4 neighbouring inputs of 32 outputs:
//             4 bits: 64 bytes; output o of the first 16 in the low halves of bytes 4o to 4o + 3,
//                     output o + 16 in the high halves
//             8 bits: 128 bytes; output o in bytes 4o to 4o + 3
//
// Minimums are a stream of their own, of pairs of bfloat16 for groups 2p and 2p + 1. Few formats
// need them: a symmetric one has its zero in the centre.
#pragma once

#include "element.h"
#include "tile.h"

namespace splitserve {

constexpr int kSpan = 32;              // inputs that share a scale of the activations
constexpr int kSpanSteps = kSpan / 4;  // a step is what one multiplication of bytes takes
constexpr int kScaleBytes = 2 * kPanel;

// Mirrored in kernels/cpu/grouped_linear.py.
struct GroupedMatrix {
  const uint8_t* panels;
  const Word* minimums;  // [num_panels][pairs][32], or null when all are zero
  const float* factors;  // [32 * num_panels], powers of two
  const float* bias;     // [num_outputs] or null
  int64_t num_outputs, num_inputs, group, bits;

  int64_t num_panels() const { return (num_outputs + kPanel - 1) / kPanel; }
  int64_t num_groups() const { return num_inputs / group; }
  int64_t num_pairs() const { return (num_groups() + 1) / 2; }
  int64_t num_spans() const { return num_inputs / kSpan; }
  int64_t step_bytes() const { return 4 * kPanel * bits / 8; }
  int64_t group_bytes() const { return kScaleBytes + group / 4 * step_bytes(); }
  int64_t panel_bytes() const { return num_groups() * group_bytes(); }
  int32_t centre() const { return 1 << (bits - 1); }
};

struct FourBits {
  static constexpr int kStepBytes = 64;
  static void load(const uint8_t* step, __m512i& left, __m512i& right) {
    const __m512i low = _mm512_set1_epi8(15), both = _mm512_loadu_si512(step);
    left = _mm512_and_si512(both, low);
    right = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
  }
  static int value(const uint8_t* step, int64_t output, int64_t input) {
    const int both = step[output % 16 * 4 + input];
    return output < 16 ? both & 15 : both >> 4;
  }
};

struct EightBits {
  static constexpr int kStepBytes = 128;
  static void load(const uint8_t* step, __m512i& left, __m512i& right) {
    left = _mm512_loadu_si512(step);
    right = _mm512_loadu_si512(step + 64);
  }
  static int value(const uint8_t* step, int64_t output, int64_t input) {
    return step[output * 4 + input];
  }
};

inline __m512 widen_half(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

}  // namespace splitserve
