// Multilinear hash modulo 2^64 of each slice: the sum of half[i] * weight[i] over its 32-bit halves,
// the weights odd, different and below 2^32 (kernels/reference/block_digest.py says what that finds).
#include "element.h"

namespace {

constexpr int64_t kTogether = 4;  // slices share the loads and shuffles of the weights

// The high halves of 64-bit lanes, in the place of the low ones. A shuffle: shifts and products share
// a port (16 blocks from L3, 27 GB/s; 24 with shifts).
inline __m512i high_halves(__m512i words) {
  return _mm512_castps_si512(_mm512_movehdup_ps(_mm512_castsi512_ps(words)));
}

inline uint64_t product_of_halves(uint64_t word, uint64_t weights) {
  return (word & 0xffffffffu) * (weights & 0xffffffffu) + (word >> 32) * (weights >> 32);
}

// `count` slices that follow each other.
template <int64_t count>
void digest_slices(const int64_t* words, const int64_t* weights, int64_t slice_words,
                   int64_t* out) {
  __m512i low[count] = {}, high[count] = {};
  int64_t i = 0;
  for (; i + 8 <= slice_words; i += 8) {
    const __m512i weight = _mm512_loadu_si512(weights + i), high_weight = high_halves(weight);
    for (int64_t slice = 0; slice < count; ++slice) {
      const __m512i word = _mm512_loadu_si512(words + slice * slice_words + i);
      low[slice] = _mm512_add_epi64(low[slice], _mm512_mul_epu32(word, weight));
      high[slice] =
          _mm512_add_epi64(high[slice], _mm512_mul_epu32(high_halves(word), high_weight));
    }
  }
  for (int64_t slice = 0; slice < count; ++slice, words += slice_words) {
    uint64_t total =
        static_cast<uint64_t>(_mm512_reduce_add_epi64(_mm512_add_epi64(low[slice], high[slice])));
    for (int64_t rest = i; rest < slice_words; ++rest)
      total += product_of_halves(static_cast<uint64_t>(words[rest]),
                                 static_cast<uint64_t>(weights[rest]));
    out[slice] = static_cast<int64_t>(total);
  }
}

}  // namespace

extern "C" void splitserve_block_digest(const int64_t* pool, int64_t block_words,
                                        const int64_t* block_ids, int64_t num_blocks,
                                        int64_t slices_per_block, const int64_t* weights,
                                        int64_t* out) {
  const int64_t slice_words = block_words / slices_per_block;
  for (int64_t block = 0; block < num_blocks; ++block, out += slices_per_block) {
    const int64_t* words = pool + block_ids[block] * block_words;
    int64_t slice = 0;
    for (; slice + kTogether <= slices_per_block; slice += kTogether)
      digest_slices<kTogether>(words + slice * slice_words, weights, slice_words, out + slice);
    for (; slice < slices_per_block; ++slice)
      digest_slices<1>(words + slice * slice_words, weights, slice_words, out + slice);
  }
}
