// Passes over whole rows of logits of which top-p keeps some: kernels/cpu/row_passes.py says what each
// does.
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

int64_t mass_of(const float* weights, int64_t width) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < width; i += 16) {
    const __mmask16 lanes = first_lanes(width - i);
    sum = _mm512_add_epi64(sum, masses_of(_mm512_maskz_loadu_ps(lanes, weights + i)));
  }
  return _mm512_reduce_add_epi64(sum);
}

void write_depths(const float* from, int64_t width, float maximum, float temperature, float* to) {
  const __m512 top = _mm512_set1_ps(maximum), divisor = _mm512_set1_ps(temperature);
  for (int64_t i = 0; i < width; i += 16) {
    const __mmask16 lanes = first_lanes(width - i);
    const __m512 gap = _mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, from + i), top);
    _mm512_mask_storeu_ps(to + i, lanes, _mm512_div_ps(gap, divisor));
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
                                      const float* temperatures, float* depths,
                                      int32_t num_threads) {
  using namespace splitserve;
  const Rows from{logits, row_stride, width, rows};
  parallel_for(num_rows, num_threads, [&](int64_t i) {
    write_depths(from.row(i), width, maxima[i], temperatures[i], depths + i * width);
  });
}

extern "C" void splitserve_row_masses(const float* weights, int64_t width, int64_t num_rows,
                                      int64_t* masses, int32_t num_threads) {
  using namespace splitserve;
  parallel_for(num_rows, num_threads,
               [&](int64_t i) { masses[i] = mass_of(weights + i * width, width); });
}

extern "C" void splitserve_nucleus_floors(const float* logits, int64_t row_stride, int64_t width,
                                          const int64_t* rows, int64_t num_rows,
                                          const float* weights, const float* maxima,
                                          const double* top_p, float* floors,
                                          int32_t num_threads) {
  using namespace splitserve;
  const Rows from{logits, row_stride, width, rows};
  parallel_for(num_rows, num_threads, [&](int64_t i) {
    if (top_p[i] < 1.0)
      floors[i] = std::max(floors[i], nucleus_floor(from.row(i), weights + i * width, width,
                                                    maxima[i], floors[i], top_p[i]));
  });
}
