// Draws a token of each row by the noise of each token: kernels/reference/sample.py and token_noise.py
// say which.
//
// Few tokens need their logarithms: those whose bound is not below the best score so far. With h the
// token's word, noise is -log(h / 2^32) at most, and log2 of (1 + m) * 2^e is e + m at least, which
// the bits of a float say.
#include "element.h"
#include "parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace splitserve {
namespace {

constexpr float kLog2E = 1.44269504f;
constexpr float kMargin = 1e-3f;  // over the rounding of a bound, of some 1e-5
constexpr float kUnitsPerOctave = static_cast<float>(1 << 23);  // of a float's bits

// The words of a row's key enter at two places.
struct Key {
  uint32_t first, second;
};

struct Runner {
  float maximum, temperature, floor, min_gap;
  Key key;
};

inline uint32_t mixed(uint32_t x, Key key) {
  x ^= key.first;
  x = (x ^ x >> 17) * 0xed5ad4bbu;
  x = (x ^ x >> 11) * 0xac4c1b51u;
  x ^= key.second;
  x = (x ^ x >> 15) * 0x31848babu;
  return x ^ x >> 14;
}

inline __m512i mixed(__m512i x, __m512i first, __m512i second) {
  const auto step = [](__m512i y, int bits, uint32_t factor) {
    return _mm512_mullo_epi32(_mm512_xor_si512(y, _mm512_srli_epi32(y, bits)),
                              _mm512_set1_epi32(static_cast<int32_t>(factor)));
  };
  x = step(_mm512_xor_si512(x, first), 17, 0xed5ad4bbu);
  x = step(x, 11, 0xac4c1b51u);
  x = step(_mm512_xor_si512(x, second), 15, 0x31848babu);
  return _mm512_xor_si512(x, _mm512_srli_epi32(x, 14));
}

double score(float gap, int64_t token, const Runner& runner) {
  const uint32_t high = mixed(static_cast<uint32_t>(token), runner.key);
  const uint32_t low = mixed(~high, runner.key);
  const auto steps = static_cast<double>(uint64_t{high} << 20 | low >> 12);
  const double left = 1.0 - (steps + 0.5) * 0x1p-52;
  return static_cast<double>(gap / runner.temperature) - std::log(-std::log(left));
}

int64_t winner(const float* logits, int64_t width, const Runner& runner) {
  const __m512 top = _mm512_set1_ps(runner.maximum), floor = _mm512_set1_ps(runner.floor);
  const __m512 min_gap = _mm512_set1_ps(runner.min_gap);
  const __m512 octaves = _mm512_set1_ps(kLog2E / runner.temperature);
  const __m512 per_unit = _mm512_set1_ps(1.0f / kUnitsPerOctave);
  const __m512i first = _mm512_set1_epi32(static_cast<int32_t>(runner.key.first));
  const __m512i second = _mm512_set1_epi32(static_cast<int32_t>(runner.key.second));
  const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  double best = -std::numeric_limits<double>::infinity();
  int64_t found = 0;
  __m512 needed = _mm512_set1_ps(static_cast<float>(best));
  for (int64_t i = 0; i < width; i += 16) {
    const __mmask16 lanes = first_lanes(width - i);
    const __m512 logit = _mm512_maskz_loadu_ps(lanes, logits + i);
    const __m512 gap = _mm512_sub_ps(logit, top);
    __mmask16 kept = _mm512_mask_cmp_ps_mask(lanes, logit, floor, _CMP_GE_OQ);
    kept = _mm512_mask_cmp_ps_mask(kept, gap, min_gap, _CMP_GE_OQ);
    if (kept == 0) continue;
    const __m512i token = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int32_t>(i)), steps);
    const __m512i half = _mm512_srli_epi32(mixed(token, first, second), 1);
    const __m512i bits = _mm512_castps_si512(_mm512_cvtepi32_ps(half));
    const __m512 bound = _mm512_fmadd_ps(_mm512_cvtepi32_ps(bits), per_unit, needed);
    kept = _mm512_mask_cmp_ps_mask(kept, _mm512_mul_ps(gap, octaves), bound, _CMP_GE_OQ);
    for (uint32_t left = kept; left != 0; left &= left - 1) {
      const int64_t at = i + __builtin_ctz(left);
      const double mine = score(logits[at] - runner.maximum, at, runner);
      if (mine > best) best = mine, found = at;
    }
    if (kept != 0)
      needed = _mm512_set1_ps(static_cast<float>(best) * kLog2E - (127.0f + 31.0f) - kMargin);
  }
  return found;
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_race(const float* logits, int64_t row_stride, int64_t width,
                                const int64_t* rows, int64_t num_rows, const float* maxima,
                                const float* temperatures, const float* floors,
                                const float* min_gaps, const uint64_t* keys, int64_t* ids,
                                int32_t num_threads) {
  using namespace splitserve;
  parallel_for(num_rows, num_threads, [&](int64_t i) {
    const Key key{static_cast<uint32_t>(keys[i]), static_cast<uint32_t>(keys[i] >> 32)};
    const Runner runner{maxima[i], temperatures[i], floors[i], min_gaps[i], key};
    ids[i] = winner(logits + rows[i] * row_stride, width, runner);
  });
}
