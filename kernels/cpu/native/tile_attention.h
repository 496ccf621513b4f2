// What one thread does with the tiles of its task.
//
// A tile's rows are its query tokens times the query heads that share a KV head. Keys and values come
// in chunks of 64 tokens at fixed positions of the sequence; a chunk is brought into panels once and
// used for all rows, kBlockRows at a time, whose scores go to no panel. A row's arithmetic depends on
// its own position only, so decode, prefill and any chunking give the same bits.
#pragma once

#include <vector>

#include "attention_panels.h"
#include "attention_tiles.h"
#include "few_rows.h"
#include "online_softmax.h"
#include "row_totals.h"
#include "widen_rows.h"

namespace splitserve {

// One chunk of one KV head of one tile.
struct ChunkStep {
  const Tile* tile;
  int64_t head, start;  // head within the tile
  bool opens, ends_segment, closes;
};

// Working memory of one thread, kept between tasks.
template <class E>
struct TileScratch {
  using Value = typename E::Value;
  std::vector<ChunkStep> steps;
  std::vector<Word> keys, values;           // panels
  std::vector<Value> query, wide_keys, wide_values;  // [rows][query words], [kChunk][columns]
  std::vector<float> sums, total_sums;      // [rows][columns]
  std::vector<RowSoftmax> rows;
  std::vector<int64_t> positions;  // of the rows of a head
  std::vector<RowTotal> totals;
  std::vector<char> absent;  // a row of zeros
  ChunkRows chunks[2];
  alignas(64) Value weights[kBlockRows * kChunk];
  alignas(64) Word strip[ByteRows::kWords * kPanelColumns];
  alignas(64) float key_scales[kChunk], value_scales[kChunk];
};

template <class E>
class TileAttention {
 public:
  using Value = typename E::Value;

  TileAttention(const Attention& job, Partials& partials, TileScratch<E>& scratch)
      : job_(job), partials_(partials), s_(scratch), dim_(job.head_dim), group_(job.group()),
        words_(job.head_dim / E::kPerWord), query_words_((words_ + 31) / 32 * 32),
        columns_(columns_of(job)),
        panel_columns_((job.head_dim + 63) / 64 * 64) {
    s_.keys.resize((words_ + 15) / 16 * 16 * kPanelColumns);
    s_.values.resize(panel_columns_ * kChunk / E::kPerWord);
    s_.absent.assign(panel_columns_ * sizeof(Value), 0);
    if (job.kv_dtype != kKvPlain) {
      s_.wide_keys.resize(kChunk * panel_columns_);
      s_.wide_values.resize(kChunk * panel_columns_);
    }
  }

  void run(const Tile* first, const Tile* end) {
    list_steps(first, end);
    find(s_.steps[0], s_.chunks[0]);
    for (size_t i = 0; i < s_.steps.size(); ++i) {
      const ChunkStep& step = s_.steps[i];
      const bool more = i + 1 < s_.steps.size();
      ChunkRows& next = s_.chunks[(i + 1) % 2];
      if (more) find(s_.steps[i + 1], next);
      if (step.opens) open(*step.tile);
      if (is_few(*step.tile)) {
        attend_few(step, s_.chunks[i % 2], more ? next : s_.chunks[i % 2]);
      } else {
        ahead_ = more ? Ahead(job_.kv, next) : Ahead();
        pack(s_.chunks[i % 2]);
        attend(step);
      }
      if (step.ends_segment) end_segment(*step.tile);
      if (step.closes) close(*step.tile);
    }
  }

 private:
  int64_t rows_per_head(const Tile& tile) const { return tile.num_queries * group_; }

  void list_steps(const Tile* first, const Tile* end) {
    s_.steps.clear();
    for (const Tile* tile = first; tile != end; ++tile) {
      const int64_t begin = tile->first_token / kChunk * kChunk;
      for (int64_t start = begin; start < tile->end_token; start += kChunk)
        for (int64_t head = 0; head < tile->num_heads; ++head) {
          const bool last_head = head + 1 == tile->num_heads;
          const bool closes = last_head && start + kChunk >= tile->end_token;
          const bool ends = last_head && (closes || (start + kChunk) % kSegment == 0);
          s_.steps.push_back({tile, head, start, start == begin && head == 0, ends, closes});
        }
    }
  }

  void find(const ChunkStep& step, ChunkRows& chunk) const {
    const Tile& tile = *step.tile;
    chunk.find(job_.kv, job_.block_tables + tile.seq * job_.max_blocks, tile.first_head + step.head,
               step.start, tile.first_token, tile.end_token, s_.absent.data());
  }

  void open(const Tile& tile) {
    const int64_t rows = rows_per_head(tile) * tile.num_heads;
    const int64_t stride = query_words_ * E::kPerWord;
    s_.query.resize(rows * stride);
    s_.rows.assign(rows, {{}, kNothingSeen, 1.0f});
    s_.sums.assign(rows * columns_, 0.0f);
    s_.totals.assign(rows, {kNothingSeen, 0.0f});
    s_.total_sums.resize(rows * columns_);
    s_.positions.resize(rows_per_head(tile));
    for (int64_t row = 0; row < rows_per_head(tile); ++row)
      s_.positions[row] = tile.first_position + row / group_;
    const Value* from = static_cast<const Value*>(job_.query) +
                        (job_.query_starts[tile.seq] + tile.first_query) * job_.query_stride;
    Value* to = s_.query.data();
    for (int64_t head = tile.first_head; head < tile.first_head + tile.num_heads; ++head)
      for (int64_t row = 0; row < rows_per_head(tile); ++row, to += stride) {
        const int64_t at = row / group_ * job_.query_stride + (head * group_ + row % group_) * dim_;
        const auto* words = reinterpret_cast<const Word*>(from + at);
        auto* copied = reinterpret_cast<Word*>(to);
        for (int64_t i = 0; i < query_words_; i += 16) {
          const __mmask16 mask = first_lanes(std::max<int64_t>(0, words_ - i));
          _mm512_storeu_si512(copied + i, _mm512_maskz_loadu_epi32(mask, words + i));
        }
      }
  }

  void pack(const ChunkRows& chunk) {
    if (job_.kv_dtype == kKvPlain) {
      pack_keys(chunk.keys, words_, s_.keys.data(), ahead_);
      pack_values(E{}, chunk.values, job_.value_dim, s_.values.data(), ahead_);
      return;
    }
    chunk.copy_scales(job_.kv, s_.key_scales, s_.value_scales);
    pack_keys(widen(chunk.keys, s_.wide_keys), words_, s_.keys.data(), ahead_);
    pack_values(E{}, widen(chunk.values, s_.wide_values), job_.value_dim, s_.values.data(), ahead_);
  }

  const char* const* widen(const char* const* rows, std::vector<Value>& wide) {
    widen_rows(widening_table(job_.kv_dtype), rows, dim_, panel_columns_, wide.data());
    for (int64_t i = 0; i < kChunk; ++i)
      wide_rows_[i] = reinterpret_cast<const char*>(&wide[i * panel_columns_]);
    return wide_rows_;
  }

  // Few rows of bfloat16 take what they read from the pool at once.
  bool is_few(const Tile& tile) const {
    return E::kPerWord == 2 && rows_per_head(tile) <= kBlockRows;
  }

  // Hints are for the rows of `next`.
  void attend_few(const ChunkStep& step, const ChunkRows& chunk, const ChunkRows& next) {
    if constexpr (E::kPerWord == 2) {
      if (job_.kv_dtype == kKvPlain) return attend_rows(step, chunk, next, PlainRows{dim_});
      next.prefetch_scales(job_.kv);
      chunk.copy_scales(job_.kv, s_.key_scales, s_.value_scales);
      attend_rows(step, chunk, next, ByteRows{dim_, widening_table(job_.kv_dtype)});
    }
  }

  template <class Rows>
  void attend_rows(const ChunkStep& step, const ChunkRows& chunk, const ChunkRows& next,
                   const Rows& rows) {
    const Tile& tile = *step.tile;
    const int64_t count = rows_per_head(tile), first_row = step.head * count;
    const int64_t vectors = visible_vectors(step, 0, count);
    if (vectors == 0) return;
    const Word* query = reinterpret_cast<const Word*>(s_.query.data()) + first_row * query_words_;
    with_count<kBlockRows>(count, [&](auto r) {
      constexpr int R = r();
      bool grew = false;
      with_count<kPanelVectors>(vectors, [&](auto v) {
        __m512 sums[R][v()];
        score_few_rows(rows, chunk, next, query, query_words_, s_.strip, sums);
        if constexpr (v() == kPanelVectors)
          if (is_simple(step, 0, count)) {
            grew = soften_rows<true>(step, first_row, 0, sums);
            return;
          }
        grew = soften_rows<false>(step, first_row, 0, sums);
      });
      const Word* weights = reinterpret_cast<const Word*>(s_.weights);
      accumulate<R>(first_row, grew, [&](int64_t column, auto& sums) {
        add_few_rows(rows, chunk, next, weights, column, vectors * 8, sums);
      });
    });
  }

  void attend(const ChunkStep& step) {
    const Tile& tile = *step.tile;
    const int64_t rows = rows_per_head(tile), first_row = step.head * rows;
    for_row_blocks(rows, [&](int64_t first, int64_t count) {
      const int64_t vectors = visible_vectors(step, first, count);
      if (vectors == 0) return;
      with_count<kBlockRows>(count, [&](auto r) {
        bool grew = false;
        with_count<kPanelVectors>(vectors, [&](auto v) {
          constexpr int V = v();
          if constexpr (V == kPanelVectors)
            if (is_simple(step, first, count)) {
              grew = score<true, r(), V>(step, first_row, first);
              return;
            }
          grew = score<false, r(), V>(step, first_row, first);
        });
        accumulate<r()>(first_row + first, grew, [&](int64_t column, auto& sums) {
          multiply_block<E>(reinterpret_cast<const Word*>(s_.weights), kChunk / E::kPerWord,
                            &s_.values[column * (kChunk / E::kPerWord)],
                            vectors * (16 / E::kPerWord), sums);
        });
      });
    });
  }

  // Which tokens of the chunk a row sees.
  Visible visible_to(const ChunkStep& step, int64_t row) const {
    const int64_t end = s_.positions[row] - step.start + 1;
    return {end - job_.window, end};
  }

  // Whether each of these rows sees every token of the chunk, and there are no scales.
  bool is_simple(const ChunkStep& step, int64_t first, int64_t count) const {
    return job_.kv_dtype == kKvPlain && visible_to(step, first).end >= kChunk &&
           visible_to(step, first + count - 1).first <= 0;
  }

  // How many vectors of 16 tokens any of these rows sees in the chunk; the last row sees most, the
  // first begins earliest.
  int64_t visible_vectors(const ChunkStep& step, int64_t first, int64_t count) const {
    const int64_t end = visible_to(step, first + count - 1).end;
    if (end <= 0 || visible_to(step, first).first >= kChunk) return 0;
    return std::min<int64_t>(kPanelVectors, (end - 1) / 16 + 1);
  }

  // Scores of R rows, then weights in s_.weights; returns whether any row's maximum grew.
  template <bool Simple, int R, int V>
  bool score(const ChunkStep& step, int64_t first_row, int64_t first) {
    __m512 sums[R][V];
    for (auto& row : sums)
      for (auto& vector : row) vector = _mm512_setzero_ps();
    const Word* query = reinterpret_cast<const Word*>(s_.query.data());
    multiply_block<E, R, V>(query + (first_row + first) * query_words_, query_words_,
                            s_.keys.data(), words_, sums);
    return soften_rows<Simple>(step, first_row, first, sums);
  }

  template <bool Simple, int R, int V>
  inline __attribute__((always_inline)) bool soften_rows(const ChunkStep& step, int64_t first_row,
                                                         int64_t first, __m512 (&sums)[R][V]) {
    const bool quantized = job_.kv_dtype != kKvPlain;
    const __m512 scale = _mm512_set1_ps(job_.scale * 1.44269504f);
    Visible visible[R];
    for (int r = 0; !Simple && r < R; ++r) visible[r] = visible_to(step, first + r);
    return soften<E, Simple>(sums, scale, quantized ? s_.key_scales : nullptr,
                             quantized ? s_.value_scales : nullptr, visible,
                             &s_.rows[first_row + first], s_.weights);
  }

  // Brings earlier sums of R rows to the present maxima; `add(column, sums)` adds weighted values.
  template <int R, class Add>
  void accumulate(int64_t row, bool grew, const Add& add) {
    for (int64_t column = 0; column < columns_; column += kPanelColumns)
      with_count<kPanelVectors>((columns_ - column) / 16, [&](auto vectors) {
        constexpr int V = vectors();
        const int64_t stride = columns_;
        float* at = &s_.sums[row * stride + column];
        __m512 sums[R][V];
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v) sums[r][v] = _mm512_loadu_ps(at + r * stride + 16 * v);
        if (grew)
          for (int r = 0; r < R; ++r)
            for (int v = 0; v < V; ++v)
              sums[r][v] = _mm512_mul_ps(sums[r][v], _mm512_set1_ps(s_.rows[row + r].decay));
        add(column, sums);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v) _mm512_storeu_ps(at + r * stride + 16 * v, sums[r][v]);
      });
  }

  void end_segment(const Tile& tile) {
    const int64_t rows = rows_per_head(tile) * tile.num_heads;
    for (int64_t row = 0; row < rows; ++row) {
      RowSoftmax& state = s_.rows[row];
      float* sums = &s_.sums[row * columns_];
      const RowTotal segment{state.max, _mm512_reduce_add_ps(_mm512_load_ps(state.sum))};
      join(s_.totals[row], &s_.total_sums[row * columns_], segment, sums, columns_);
      state = {{}, kNothingSeen, 1.0f};
      for (int64_t i = 0; i < columns_; i += 16) _mm512_storeu_ps(sums + i, _mm512_setzero_ps());
    }
  }

  void close(const Tile& tile) {
    const int64_t rows = rows_per_head(tile) * tile.num_heads;
    if (tile.is_partial()) {
      std::copy_n(s_.totals.data(), rows, &partials_.totals[tile.partial]);
      std::copy_n(s_.total_sums.data(), rows * columns_, &partials_.sums[tile.partial * columns_]);
      return;
    }
    write_rows<E>(job_, tile, s_.totals.data(), s_.total_sums.data());
  }

  const Attention& job_;
  Partials& partials_;
  TileScratch<E>& s_;
  const int64_t dim_, group_, words_, query_words_, columns_, panel_columns_;
  const char* wide_rows_[kChunk];
  Ahead ahead_;
};

}  // namespace splitserve
