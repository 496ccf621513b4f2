// Sixteen values at a time, as floats: of float32, bfloat16 and float16. Rounded to the nearest, once.
#pragma once

#include <cstdint>

namespace splitserve {

enum ValueType : int32_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

}  // namespace splitserve

#ifdef __AVX512BF16__
#include "lanes_avx512.h"
#else
#include "lanes_avx2.h"
#endif

namespace splitserve {

// The sum of `num_ranks` vectors of `count` values, in the order of the ranks, to `out`, and to
// `copy` where it is not null. `out` may be one of them.
template <class Lanes>
void add_ranks(const typename Lanes::Value* const* parts, int64_t num_ranks, int64_t count,
               typename Lanes::Value* out, typename Lanes::Value* copy) {
  const auto add = [&](int64_t i, Part part) {
    Sixteen sum = Lanes::load(parts[0] + i, part);
    for (int64_t rank = 1; rank < num_ranks; ++rank)
      sum = added(sum, Lanes::load(parts[rank] + i, part));
    Lanes::store(out + i, sum, part);
    if (copy != nullptr) Lanes::store(copy + i, sum, part);
  };
  int64_t i = 0;
  for (; i + 64 <= count; i += 64)
#pragma GCC unroll 4
    for (int lane = 0; lane < 64; lane += 16) add(i + lane, kWhole);
  for (; i < count; i += 16) add(i, count - i >= 16 ? kWhole : first_of(count - i));
}

}  // namespace splitserve
