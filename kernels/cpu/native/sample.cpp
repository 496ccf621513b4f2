// Passes over whole rows of logits that are sampled: kernels/cpu/row_passes.py says what each does.
// A mass is a weight in whole units of 2^-44; sums of masses are integers, exact in any order.
#include "element.h"
#include "parallel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace splitserve {
namespace {

constexpr int64_t kBlock = 128;
constexpr float kUnit = static_cast<float>(int64_t{1} << 44);
constexpr int kBucketShift = 16;  // leaves 7 bits of a float's mantissa
constexpr int64_t kBuckets = (int64_t{0x7f800000} >> kBucketShift) + 1;  // up to infinity

struct Rows {
  const float* logits;
  int64_t row_stride, width;
  const int64_t* rows;
  const float* row(int64_t index) const { return logits + rows[index] * row_stride; }
};

// The masses of 16 weights, added up in pairs of lanes.
inline __m512i masses_of(__m512 weights) {
  const __m512 units = _mm512_mul_ps(weights, _mm512_set1_ps(kUnit));
  return _mm512_add_epi64(_mm512_cvttps_epi64(_mm512_castps512_ps256(units)),
                          _mm512_cvttps_epi64(_mm512_extractf32x8_ps(units, 1)));
}

int64_t block_mass(const float* logits, const float* weights, int64_t count, float floor,
                   float min_p) {
  const __m512 lowest = _mm512_set1_ps(floor), lightest = _mm512_set1_ps(min_p);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = first_lanes(count - i);
    const __m512 weight = _mm512_maskz_loadu_ps(lanes, weights + i);
    const __m512 logit = _mm512_maskz_loadu_ps(lanes, logits + i);
    __mmask16 kept = _mm512_mask_cmp_ps_mask(lanes, logit, lowest, _CMP_GE_OQ);
    kept = _mm512_mask_cmp_ps_mask(kept, weight, lightest, _CMP_GE_OQ);
    sum = _mm512_add_epi64(sum, masses_of(_mm512_maskz_mov_ps(kept, weight)));
  }
  return _mm512_reduce_add_epi64(sum);
}

void write_depths(const float* from, int64_t width, float maximum, float temperature, float* to,
                  int64_t padded) {
  const __m512 top = _mm512_set1_ps(maximum), divisor = _mm512_set1_ps(temperature);
  const __m512 nothing = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i < padded; i += 16) {
    const __mmask16 lanes = i < width ? first_lanes(width - i) : 0;
    const __m512 logit = _mm512_maskz_loadu_ps(lanes, from + i);
    const __m512 depth = _mm512_div_ps(_mm512_sub_ps(logit, top), divisor);
    _mm512_storeu_ps(to + i, _mm512_mask_mov_ps(nothing, lanes, depth));
  }
}

inline int64_t bucket_of(float maximum, float logit) {
  const float depth = maximum - logit + 0.0f;  // never -0, which is what -0 - 0 would be
  int32_t bits;
  std::memcpy(&bits, &depth, sizeof bits);
  return bits >> kBucketShift;
}

// Of the tokens with logits from `floor` on, in buckets by their distance from the maximum, which
// orders as logits do: the lowest logit in the smallest set of the likeliest that has a share
// `top_p` of the mass. -infinity when all of them are needed.
float nucleus_floor(const float* logits, const float* weights, int64_t width, float maximum,
                    float floor, double top_p) {
  thread_local std::vector<int64_t> mass;
  mass.assign(kBuckets, 0);
  int64_t total = 0;
  for (int64_t i = 0; i < width; ++i) {
    if (!(logits[i] >= floor)) continue;
    const auto each = static_cast<int64_t>(weights[i] * kUnit);
    mass[bucket_of(maximum, logits[i])] += each;
    total += each;
  }
  const auto wanted = std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(top_p * static_cast<double>(total))));
  if (wanted > total) return -std::numeric_limits<float>::infinity();
  int64_t bucket = 0, before = 0;
  while (before + mass[bucket] < wanted) before += mass[bucket++];
  std::vector<std::pair<float, int64_t>> members;
  for (int64_t i = 0; i < width; ++i)
    if (logits[i] >= floor && bucket_of(maximum, logits[i]) == bucket)
      members.emplace_back(logits[i], static_cast<int64_t>(weights[i] * kUnit));
  std::sort(members.begin(), members.end(), std::greater<>());
  float last = members.front().first;
  for (const auto& [logit, each] : members) {
    if (before >= wanted) break;
    last = logit;
    before += each;
  }
  return last;
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_row_depths(const float* logits, int64_t row_stride, int64_t width,
                                      const int64_t* rows, int64_t num_rows, const float* maxima,
                                      const float* temperatures, float* depths, int64_t padded,
                                      int32_t num_threads) {
  using namespace splitserve;
  const Rows from{logits, row_stride, width, rows};
  parallel_for(num_rows, num_threads, [&](int64_t i) {
    write_depths(from.row(i), width, maxima[i], temperatures[i], depths + i * padded, padded);
  });
}

extern "C" void splitserve_block_masses(const float* logits, int64_t row_stride, int64_t width,
                                        const int64_t* rows, int64_t num_rows,
                                        const float* weights, int64_t padded, const float* floors,
                                        const float* min_p, int64_t* masses, int32_t num_threads) {
  using namespace splitserve;
  const Rows from{logits, row_stride, width, rows};
  const int64_t num_blocks = padded / kBlock;
  parallel_for(num_rows, num_threads, [&](int64_t i) {
    for (int64_t block = 0; block < num_blocks; ++block) {
      const int64_t start = block * kBlock;
      masses[i * num_blocks + block] =
          block_mass(from.row(i) + start, weights + i * padded + start,
                     std::min(kBlock, width - start), floors[i], min_p[i]);
    }
  });
}

extern "C" void splitserve_nucleus_floors(const float* logits, int64_t row_stride, int64_t width,
                                          const int64_t* rows, int64_t num_rows,
                                          const float* weights, int64_t padded,
                                          const float* maxima, const double* top_p, float* floors,
                                          int32_t num_threads) {
  using namespace splitserve;
  const Rows from{logits, row_stride, width, rows};
  parallel_for(num_rows, num_threads, [&](int64_t i) {
    if (top_p[i] < 1.0)
      floors[i] = std::max(floors[i], nucleus_floor(from.row(i), weights + i * padded, width,
                                                    maxima[i], floors[i], top_p[i]));
  });
}
