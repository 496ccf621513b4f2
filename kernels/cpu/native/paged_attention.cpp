// Causal attention over paged keys and values, with an online softmax (Milakov and Gimelshein, 2018).
//
// A task is one KV head of one tile of query tokens; its rows are those tokens times the query heads
// that share the KV head. Keys and values are taken in chunks of 64 tokens at fixed positions of the
// sequence, brought into panels, and used for all rows. A row's arithmetic depends on its own position
// only, so decode, prefill and any chunking give the same bits.
#include <algorithm>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "operations.h"
#include "parallel.h"
#include "tile.h"

namespace splitserve {
namespace {

constexpr int64_t kChunk = 64;     // tokens
constexpr int64_t kTileRows = 96;  // 48 cost 5 % more, 144 saves 5 % but leaves short prompts few tiles

struct Attention {
  const void* query;  // rows `query_stride` values apart
  int64_t query_stride;
  const void* kv_layer;
  int64_t block_stride;
  const int32_t* query_starts;
  const int32_t* context_lens;
  const int32_t* block_tables;
  int64_t max_blocks, num_seqs, num_heads, num_kv_heads, block_size, head_dim;
  float scale;
  void* out;
};

struct Tile {
  int64_t seq, kv_head, first_query, num_queries;
};

// 16 rows of 16 words -> 16 columns.
inline void transpose(__m512i (&rows)[16]) {
  __m512i half[16];
  for (int i = 0; i < 16; i += 2) {
    half[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    half[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    half[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    half[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
    half[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    half[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    rows[i] = _mm512_shuffle_i32x4(half[i], half[i + 8], 0x88);
    rows[i + 8] = _mm512_shuffle_i32x4(half[i], half[i + 8], 0xdd);
  }
}

// Working memory of one thread, kept between tasks.
template <class E>
struct Scratch {
  using Value = typename E::Value;
  std::vector<Word> keys, values;          // panels
  std::vector<float> scores, sums;         // [kTileRows][kChunk], [rows][head_dim]
  std::vector<Value> weights, query, zero; // [kTileRows][kChunk], [rows][head_dim], [head_dim]
  std::vector<float> row_max, row_sum, chunk_max, chunk_sum, decay;  // [rows, padded to 16]
  const Value* next_keys[kChunk];  // rows of the chunk that comes after the present one
  const Value* key_rows[kChunk];

  void fit(int64_t rows, int64_t dim) {
    keys.resize(kChunk * dim);
    values.resize(kChunk * dim);
    scores.resize(rows * kChunk);
    weights.resize(rows * kChunk);
    sums.assign(rows * dim, 0.0f);
    query.resize(rows * dim);
    zero.assign(dim, 0);
    const int64_t padded = (rows + 15) / 16 * 16;
    row_max.assign(padded, -std::numeric_limits<float>::infinity());
    row_sum.assign(padded, 0.0f);
    chunk_max.assign(padded, 0.0f);
    chunk_sum.assign(padded, 0.0f);
    decay.resize(padded);
  }
};

template <class E>
class TileAttention {
 public:
  using Value = typename E::Value;

  TileAttention(const Attention& job, const Tile& tile, Scratch<E>& scratch)
      : job_(job), tile_(tile), s_(scratch), group_(job.num_heads / job.num_kv_heads),
        rows_(tile.num_queries * group_), dim_(job.head_dim), words_(job.head_dim / E::kPerWord),
        to_values_(job.num_kv_heads * job.block_size * job.head_dim) {
    const int64_t num_queries = job.query_starts[tile.seq + 1] - job.query_starts[tile.seq];
    first_position_ = job.context_lens[tile.seq] - num_queries + tile.first_query;
    first_row_ = job.query_starts[tile.seq] + tile.first_query;
  }

  void run() {
    s_.fit(rows_, dim_);
    take_query();
    const int64_t end = first_position_ + tile_.num_queries;
    find_next_rows(0, end);
    for (int64_t start = 0; start < end; start += kChunk) {
      std::copy_n(s_.next_keys, kChunk, s_.key_rows);
      if (start + kChunk < end) find_next_rows(start + kChunk, end);
      pack_keys();
      pack_values();
      score();
      for (int64_t row = 0; row < rows_; ++row) soften(row, start);
      merge();
      accumulate();
    }
    write_out();
  }

 private:
  int64_t position(int64_t row) const { return first_position_ + row / group_; }

  int64_t head_offset(int64_t row) const {
    return (tile_.kv_head * group_ + row % group_) * dim_;
  }

  void take_query() {
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t at = (first_row_ + row / group_) * job_.query_stride + head_offset(row);
      std::copy_n(static_cast<const Value*>(job_.query) + at, dim_, &s_.query[row * dim_]);
    }
  }

  // Where the next chunk's keys lie in the pool, and a hint to bring keys and values near. Past the
  // end there are zeros, so that no stale value counts.
  void find_next_rows(int64_t start, int64_t end) {
    const int64_t block_size = job_.block_size, count = std::min(kChunk, end - start);
    const int32_t* table = job_.block_tables + tile_.seq * job_.max_blocks + start / block_size;
    int64_t offset = start % block_size;
    for (int64_t i = 0; i < count; offset = 0, ++table) {
      const Value* row = static_cast<const Value*>(job_.kv_layer) + *table * job_.block_stride +
                         (tile_.kv_head * block_size + offset) * dim_;
      for (; offset < block_size && i < count; ++offset, ++i, row += dim_) {
        s_.next_keys[i] = row;
        for (int64_t at = 0; at < dim_; at += 64 / static_cast<int64_t>(sizeof(Value))) {
          _mm_prefetch(reinterpret_cast<const char*>(row + at), _MM_HINT_T1);
          _mm_prefetch(reinterpret_cast<const char*>(row + to_values_ + at), _MM_HINT_T1);
        }
      }
    }
    for (int64_t i = count; i < kChunk; ++i) s_.next_keys[i] = s_.zero.data();
  }

  const Value* value_row(int64_t token) const {
    const Value* key = s_.key_rows[token];
    return key == s_.zero.data() ? key : key + to_values_;
  }

  // Panels of 32 tokens: [kChunk / 32][words][32].
  void pack_keys() {
    for (int64_t token = 0; token < kChunk; token += 16) {
      Word* panel = &s_.keys[token / kPanel * words_ * kPanel + token % kPanel];
      for (int64_t word = 0; word < words_; word += 16) {
        __m512i rows[16];
        for (int i = 0; i < 16; ++i)
          rows[i] = _mm512_loadu_si512(reinterpret_cast<const Word*>(s_.key_rows[token + i]) + word);
        transpose(rows);
        for (int i = 0; i < 16; ++i) _mm512_storeu_si512(panel + (word + i) * kPanel, rows[i]);
      }
    }
  }

  // Panels of 32 channels: [head_dim / 32][kChunk / kPerWord][32]. Two tokens of bfloat16 share a
  // word; interleaving leaves a panel's columns in the order that `write_out` undoes.
  void pack_values() {
    for (int64_t token = 0; token < kChunk; token += E::kPerWord) {
      const Value *first = value_row(token), *second = value_row(token + E::kPerWord - 1);
      Word* panel = &s_.values[token / E::kPerWord * kPanel];
      for (int64_t column = 0; column < dim_; column += kPanel) {
        const __m512i a = _mm512_loadu_si512(first + column);
        const __m512i b = _mm512_loadu_si512(second + column + (E::kPerWord == 1 ? 16 : 0));
        const bool whole = E::kPerWord == 1;
        _mm512_storeu_si512(panel, whole ? a : _mm512_unpacklo_epi16(a, b));
        _mm512_storeu_si512(panel + 16, whole ? b : _mm512_unpackhi_epi16(a, b));
        panel += kChunk / E::kPerWord * kPanel;
      }
    }
  }

  void score() {
    const Word* query = reinterpret_cast<const Word*>(s_.query.data());
    for_row_parts(rows_, [&](int64_t first, int count) {
      for (int64_t column = 0; column < kChunk; column += kPanel)
        with_row_count(count, [&](auto rows) {
          __m512 sums[rows()][2];
          for (auto& pair : sums) pair[0] = pair[1] = _mm512_setzero_ps();
          multiply_tile<E, rows()>(query + first * words_, words_, &s_.keys[column * words_], words_,
                                   sums);
          for (int r = 0; r < rows(); ++r)
            for (int half = 0; half < 2; ++half)
              _mm512_storeu_ps(&s_.scores[(first + r) * kChunk + column + 16 * half],
                               sums[r][half]);
        });
    });
  }

  // Scores of one row -> weights, relative to the maximum so far; the maximum and the chunk's sum.
  void soften(int64_t row, int64_t start) {
    const int64_t visible = position(row) - start + 1;
    const __m512 hidden = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    const __m512 scale = _mm512_set1_ps(job_.scale * 1.44269504f);
    __m512 score[4], top = _mm512_set1_ps(s_.row_max[row]);
    for (int i = 0; i < 4; ++i) {
      const __mmask16 mask = visible > 16 * i ? first_lanes(visible - 16 * i) : 0;
      const __m512 raw = _mm512_loadu_ps(&s_.scores[row * kChunk + 16 * i]);
      score[i] = _mm512_mask_mul_ps(hidden, mask, raw, scale);
      top = _mm512_max_ps(top, score[i]);
    }
    s_.chunk_max[row] = _mm512_reduce_max_ps(top);
    const __m512 new_max = _mm512_set1_ps(s_.chunk_max[row]);
    __m512 sum = _mm512_setzero_ps();
    for (int i = 0; i < 4; ++i) {
      const __m512 weight = power_of_two(_mm512_sub_ps(score[i], new_max));
      E::store(&s_.weights[row * kChunk + 16 * i], weight);
      sum = _mm512_add_ps(sum, weight);
    }
    s_.chunk_sum[row] = _mm512_reduce_add_ps(sum);
  }

  // Brings what earlier chunks summed to the new maxima, 16 rows at a time.
  void merge() {
    for (int64_t row = 0; row < rows_; row += 16) {
      const __m512 top = _mm512_loadu_ps(&s_.chunk_max[row]);
      const __m512 decay = power_of_two(_mm512_sub_ps(_mm512_loadu_ps(&s_.row_max[row]), top));
      const __m512 sum = _mm512_fmadd_ps(_mm512_loadu_ps(&s_.row_sum[row]), decay,
                                         _mm512_loadu_ps(&s_.chunk_sum[row]));
      _mm512_storeu_ps(&s_.decay[row], decay);
      _mm512_storeu_ps(&s_.row_sum[row], sum);
      _mm512_storeu_ps(&s_.row_max[row], top);
    }
  }

  void accumulate() {
    const int64_t steps = kChunk / E::kPerWord;
    const Word* weights = reinterpret_cast<const Word*>(s_.weights.data());
    for_row_parts(rows_, [&](int64_t first, int count) {
      for (int64_t column = 0; column < dim_; column += kPanel)
        with_row_count(count, [&](auto rows) {
          __m512 sums[rows()][2];
          float* at = &s_.sums[first * dim_ + column];
          for (int r = 0; r < rows(); ++r)
            for (int half = 0; half < 2; ++half)
              sums[r][half] = _mm512_mul_ps(_mm512_loadu_ps(at + r * dim_ + 16 * half),
                                            _mm512_set1_ps(s_.decay[first + r]));
          multiply_tile<E, rows()>(weights + first * steps, steps, &s_.values[column * steps], steps,
                                   sums);
          for (int r = 0; r < rows(); ++r)
            for (int half = 0; half < 2; ++half)
              _mm512_storeu_ps(at + r * dim_ + 16 * half, sums[r][half]);
        });
    });
  }

  void write_out() {
    for (int64_t row = 0; row < rows_; ++row) {
      const __m512 scale = _mm512_set1_ps(1.0f / s_.row_sum[row]);
      Value* to = static_cast<Value*>(job_.out) +
                  (first_row_ + row / group_) * job_.num_heads * dim_ + head_offset(row);
      for (int64_t i = 0; i < dim_; i += kPanel) {
        const __m512 left = _mm512_mul_ps(_mm512_loadu_ps(&s_.sums[row * dim_ + i]), scale);
        const __m512 right = _mm512_mul_ps(_mm512_loadu_ps(&s_.sums[row * dim_ + i + 16]), scale);
        const bool whole = E::kPerWord == 1;
        E::store(to + i, whole ? left : _mm512_permutex2var_ps(left, kFirstHalf, right));
        E::store(to + i + 16, whole ? right : _mm512_permutex2var_ps(left, kSecondHalf, right));
      }
    }
  }

  // Columns 0-3, 8-11, ... are in the left half of a panel of two-token words, 4-7, ... in the right.
  const __m512i kFirstHalf =
      _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i kSecondHalf =
      _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  const Attention& job_;
  const Tile tile_;
  Scratch<E>& s_;
  const int64_t group_, rows_, dim_, words_, to_values_;
  int64_t first_position_, first_row_;
};

// Longest first, so that no thread begins the largest task last.
std::vector<Tile> tiles_of(const Attention& job) {
  const int64_t group = job.num_heads / job.num_kv_heads;
  const int64_t tile_queries = std::max<int64_t>(1, kTileRows / group);
  std::vector<Tile> tiles;
  for (int64_t seq = 0; seq < job.num_seqs; ++seq) {
    const int64_t num_queries = job.query_starts[seq + 1] - job.query_starts[seq];
    for (int64_t first = 0; first < num_queries; first += tile_queries)
      for (int64_t head = 0; head < job.num_kv_heads; ++head)
        tiles.push_back({seq, head, first, std::min(tile_queries, num_queries - first)});
  }
  auto cost = [&](const Tile& tile) {
    const int64_t num_queries = job.query_starts[tile.seq + 1] - job.query_starts[tile.seq];
    return job.context_lens[tile.seq] - num_queries + tile.first_query;
  };
  std::stable_sort(tiles.begin(), tiles.end(),
                   [&](const Tile& a, const Tile& b) { return cost(a) > cost(b); });
  return tiles;
}

template <class E>
void paged_attention(const Attention& job, int num_threads) {
  const std::vector<Tile> tiles = tiles_of(job);
  parallel_for(static_cast<int64_t>(tiles.size()), num_threads, [&](int64_t index) {
    static thread_local Scratch<E> scratch;
    TileAttention<E>(job, tiles[index], scratch).run();
  });
}

}  // namespace
}  // namespace splitserve

extern "C" void splitserve_paged_attention(
    int32_t dtype, const void* query, int64_t query_stride, const void* kv_layer,
    int64_t block_stride, const int32_t* query_starts, const int32_t* context_lens,
    const int32_t* block_tables, int64_t max_blocks, int64_t num_seqs, int64_t num_heads,
    int64_t num_kv_heads, int64_t block_size, int64_t head_dim, float scale, void* out,
    int32_t num_threads) {
  using namespace splitserve;
  const Attention job{query,        query_stride, kv_layer,   block_stride, query_starts,
                      context_lens, block_tables, max_blocks, num_seqs,     num_heads,
                      num_kv_heads, block_size,   head_dim,   scale,        out};
  dtype == kFloat32 ? paged_attention<Float32>(job, num_threads)
                    : paged_attention<BFloat16>(job, num_threads);
}
