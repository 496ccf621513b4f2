// Multilinear hash modulo 2^64 of each slice: the sum of word[i] * weight[i], all weights odd.
#include "element.h"

extern "C" void splitserve_block_digest(const int64_t* pool, int64_t block_words,
                                        const int64_t* block_ids, int64_t num_blocks,
                                        int64_t slices_per_block, const int64_t* weights,
                                        int64_t* out) {
  const int64_t slice_words = block_words / slices_per_block;
  for (int64_t block = 0; block < num_blocks; ++block) {
    const int64_t* words = pool + block_ids[block] * block_words;
    for (int64_t slice = 0; slice < slices_per_block; ++slice, words += slice_words) {
      __m512i sums[4] = {};
      int64_t i = 0;
      for (; i + 32 <= slice_words; i += 32)
        for (int j = 0; j < 4; ++j)
          sums[j] = _mm512_add_epi64(
              sums[j], _mm512_mullo_epi64(_mm512_loadu_si512(words + i + 8 * j),
                                          _mm512_loadu_si512(weights + i + 8 * j)));
      uint64_t total = static_cast<uint64_t>(_mm512_reduce_add_epi64(_mm512_add_epi64(
          _mm512_add_epi64(sums[0], sums[1]), _mm512_add_epi64(sums[2], sums[3]))));
      for (; i < slice_words; ++i)
        total += static_cast<uint64_t>(words[i]) * static_cast<uint64_t>(weights[i]);
      *out++ = static_cast<int64_t>(total);
    }
  }
}
