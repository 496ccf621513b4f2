// A matrix of 4-bit or 8-bit values with a scale and a minimum per output and group of inputs.
//
//   weight[o][i] = factor[o] * (scale[o][g] * (value[o][i] - centre) + minimum[o][g])
//
// in panels of 32 outputs. A panel is one stream, group after group:
//
//   scales  float16 [32], or
//   pairs   int16 [32][2]: scale and minimum, of 4-bit values that have minimums
//   values  [group / 4] steps, each of 4 neighbouring inputs of 32 outputs:
//             4 bits: 64 bytes; output o of the first 16 in the low halves of bytes 4o to 4o + 3,
//                     output o + 16 in the high halves
//             8 bits: 128 bytes; output o in bytes 4o to 4o + 3
//
// Minimums of 8-bit values are a stream of their own, of pairs of bfloat16 for groups 2p and 2p + 1.
// A symmetric format has its zero in the centre and needs none.
//
// A dot product of a span of centred 4-bit values fits 16 bits, and so does the sum of the span's
// activations. Both are made in one word, and one multiplication takes them times a pair: what
// minimums add is free. (On Zen 4 a product of bytes, a product of pairs and one of floats cost the
// same; conversions, additions and shifts go beside them.)
#pragma once

#include "element.h"
#include "tile.h"

namespace splitserve {

constexpr int kSpan = 32;              // inputs that share a scale of the activations
constexpr int kSpanSteps = kSpan / 4;  // a step is what one multiplication of bytes takes

// Mirrored in kernels/cpu/grouped_linear.py.
struct GroupedMatrix {
  const uint8_t* panels;
  const Word* minimums;  // [num_panels][pairs][32], or null when all are zero
  const float* factors;  // [32 * num_panels]
  const float* bias;     // [num_outputs] or null
  int64_t num_outputs, num_inputs, group, bits, is_paired;

  int64_t num_panels() const { return (num_outputs + kPanel - 1) / kPanel; }
  int64_t num_groups() const { return num_inputs / group; }
  int64_t num_pairs() const { return (num_groups() + 1) / 2; }
  int64_t num_spans() const { return num_inputs / kSpan; }
  int64_t step_bytes() const { return 4 * kPanel * bits / 8; }
  int64_t scale_bytes() const { return (is_paired ? 4 : 2) * kPanel; }
  int64_t group_bytes() const { return scale_bytes() + group / 4 * step_bytes(); }
  int64_t panel_bytes() const { return num_groups() * group_bytes(); }
  int32_t centre() const { return 1 << (bits - 1); }
};

inline __m512 widen_half(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

// Scales of a group for the left and the right 16 outputs, and what they do with dot products.
struct FloatScales {
  static constexpr int kBytes = 2 * kPanel;
  __m512 of[2];

  explicit FloatScales(const uint8_t* from) : of{widen_half(from), widen_half(from + kPanel)} {}

  // What the dot product of a span begins with whose activations add up to `sum`.
  static int32_t first(int32_t sum, int32_t centre) { return -centre * sum; }
  static __m512i first(__m512i sums, int32_t centre) {
    return _mm512_mullo_epi32(sums, _mm512_set1_epi32(-centre));
  }
  __m512 add(__m512 to, __m512i dots, __m512 x_scale, int half) const {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_mul_ps(of[half], x_scale), to);
  }
};

// The dot product lies in the low half of a word, 2^15 too large so that it never borrows from the
// sum of the activations in the high half.
struct PairScales {
  static constexpr int kBytes = 4 * kPanel;
  __m512i of[2];

  explicit PairScales(const uint8_t* from)
      : of{_mm512_loadu_si512(from), _mm512_loadu_si512(from + 2 * kPanel)} {}

  static int32_t first(int32_t sum, int32_t centre) {
    return (sum << 16) - centre * sum + (1 << 15);
  }
  static __m512i first(__m512i sums, int32_t centre) {
    const __m512i products = _mm512_mullo_epi32(sums, _mm512_set1_epi32((1 << 16) - centre));
    return _mm512_add_epi32(products, _mm512_set1_epi32(1 << 15));
  }
  __m512 add(__m512 to, __m512i dots, __m512 x_scale, int half) const {
    const __m512i pairs = _mm512_xor_si512(dots, _mm512_set1_epi32(1 << 15));
    const __m512i products = _mm512_madd_epi16(pairs, of[half]);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), x_scale, to);
  }
};

struct FourBits {
  using Scales = FloatScales;
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

struct FourBitsInPairs : FourBits {
  using Scales = PairScales;
};

struct EightBits {
  using Scales = FloatScales;
  static constexpr int kStepBytes = 128;
  static void load(const uint8_t* step, __m512i& left, __m512i& right) {
    left = _mm512_loadu_si512(step);
    right = _mm512_loadu_si512(step + 64);
  }
  static int value(const uint8_t* step, int64_t output, int64_t input) {
    return step[output * 4 + input];
  }
};

}  // namespace splitserve
