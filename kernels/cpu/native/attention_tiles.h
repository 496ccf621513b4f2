// What there is to attend to, cut into tasks for threads.
//
// A context is taken in segments of 256 tokens at fixed positions. A segment is summed on its own and
// then joined to the ones before it, in order, whoever computes it: so the segments of a long context
// may go to several threads, and the bits are those of one thread.
#pragma once

#include <algorithm>
#include <vector>

#include "kv_rows.h"

namespace splitserve {

constexpr int64_t kSegment = 256;    // tokens; a multiple of kChunk
constexpr int64_t kTileRows = 192;   // of a prompt; 96 packs keys twice as often
constexpr int64_t kTasksPerThread = 4;  // so that a thread that begins late costs little
constexpr int64_t kRunCost = 60000;     // of Tile::cost(), about 0.2 ms: what is enough for a run

constexpr int64_t kEverything = int64_t{1} << 40;  // as a window

struct Attention {
  const void* query;  // rows `query_stride` values apart
  int64_t query_stride;
  KvLayer kv;
  KvDtype kv_dtype;
  const int32_t* query_starts;
  const int32_t* context_lens;
  const int32_t* block_tables;
  int64_t max_blocks, num_seqs, num_heads, num_kv_heads, head_dim;
  int64_t value_dim;  // columns of a value's row that count: all but for latents
  float scale;
  int64_t window;  // tokens that a token sees, itself among them
  void* out;

  int64_t group() const { return num_heads / num_kv_heads; }
  int64_t num_queries(int64_t seq) const { return query_starts[seq + 1] - query_starts[seq]; }
};

// Some queries of a sequence, for some KV heads, over tokens [first_token, end_token).
struct Tile {
  int64_t seq, first_query, num_queries, first_head, num_heads;
  int64_t first_position;  // of the first query
  int64_t first_token, end_token;
  int64_t partial = -1;  // place of this segment's sums, when the tile is one segment of several

  bool is_partial() const { return partial >= 0; }
  int64_t cost() const { return (end_token - first_token) * num_heads * (num_queries + 8); }
};

// A run of tiles that one thread takes.
struct TileRun {
  int64_t first, end;
};

// Rows whose segments are joined when all tiles are done.
struct Join {
  Tile whole;
  int64_t num_segments;
};

struct Plan {
  std::vector<Tile> tiles;
  std::vector<TileRun> runs;
  std::vector<Join> joins;
  int64_t num_partial_rows = 0;
};

inline Plan plan_attention(const Attention& job, int num_threads) {
  Plan plan;
  std::vector<Tile> wholes;
  const int64_t group = job.group(), tile_queries = std::max<int64_t>(1, kTileRows / group);
  for (int64_t seq = 0; seq < job.num_seqs; ++seq) {
    const int64_t num_queries = job.num_queries(seq);
    const int64_t heads = num_queries == 1 ? job.num_kv_heads : 1;
    for (int64_t first = 0; first < num_queries; first += tile_queries) {
      const int64_t count = std::min(tile_queries, num_queries - first);
      const int64_t position = job.context_lens[seq] - num_queries + first;
      const int64_t first_token = std::max<int64_t>(0, position - job.window + 1);
      for (int64_t head = 0; head < job.num_kv_heads; head += heads)
        wholes.push_back({seq, first, count, head, heads, position, first_token, position + count});
    }
  }
  const int64_t wanted = kTasksPerThread * num_threads;
  const bool few = static_cast<int64_t>(wholes.size()) < wanted;
  for (const Tile& whole : wholes) {
    const int64_t first_segment = whole.first_token / kSegment;
    const int64_t num_segments = (whole.end_token - 1) / kSegment + 1 - first_segment;
    if (num_segments == 1 || !(few || whole.num_queries == 1) || num_threads == 1) {
      plan.tiles.push_back(whole);
      continue;
    }
    for (int64_t i = 0; i < num_segments; ++i) {
      Tile part = whole;
      part.first_token = std::max(whole.first_token, (first_segment + i) * kSegment);
      part.end_token = std::min(whole.end_token, (first_segment + i + 1) * kSegment);
      part.partial = plan.num_partial_rows;
      if (i == 0) plan.joins.push_back({part, num_segments});
      plan.num_partial_rows += whole.num_queries * group * whole.num_heads;
      plan.tiles.push_back(part);
    }
  }
  if (static_cast<int64_t>(plan.tiles.size()) < 2 * num_threads) {  // a head each
    std::vector<Tile> narrow;
    for (const Tile& tile : plan.tiles)
      for (int64_t head = 0; head < tile.num_heads; ++head) {
        narrow.push_back(tile);
        narrow.back().first_head += head;
        narrow.back().num_heads = 1;
        if (tile.is_partial()) narrow.back().partial += head * tile.num_queries * group;
      }
    plan.tiles.swap(narrow);
  }
  std::stable_sort(plan.tiles.begin(), plan.tiles.end(),
                   [](const Tile& a, const Tile& b) { return a.cost() > b.cost(); });
  int64_t total = 0, cost = 0;
  for (const Tile& tile : plan.tiles) total += tile.cost();
  const int64_t enough = std::min(total / wanted, kRunCost);
  for (int64_t i = 0; i < static_cast<int64_t>(plan.tiles.size()); ++i) {
    if (cost == 0) plan.runs.push_back({i, i});
    plan.runs.back().end = i + 1;
    cost += plan.tiles[i].cost();
    if (cost >= enough) cost = 0;
  }
  return plan;
}

}  // namespace splitserve
