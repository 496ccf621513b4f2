// Bytes that change hands unsummed. Each rank has a stream of bytes, which passes through its tray a
// tray's length per phase; whoever wants a part of it takes that out as it comes by.
#include <algorithm>
#include <cstring>

#include "meet.h"

namespace splitserve {
namespace {

// Calls take(rank, stream offset, bytes, number) for what each rank shows in each phase. `bytes_of`
// a rank is the length of its stream; `own` is this rank's.
template <class BytesOf, class Take>
Outcome pass_streams(RankView& view, uint64_t call, const uint8_t* own, const BytesOf& bytes_of,
                     const Take& take) {
  const Call in_call(view);
  int64_t longest = 0;
  for (int64_t rank = 0; rank < view.num_ranks; ++rank)
    longest = std::max(longest, bytes_of(rank));
  const int64_t most = view.tray_bytes;
  const auto shown = [&](int64_t rank, int64_t at) {
    return std::max<int64_t>(0, std::min(most, bytes_of(rank) - at));
  };
  for (int64_t at = 0; at < longest; at += most) {
    uint8_t* tray = tray_of(view, view.rank, view.phase + 1);
    if (shown(view.rank, at) > 0 && tray != own + at)
      std::memcpy(tray, own + at, shown(view.rank, at));
    const Outcome outcome = meet(view, call);
    if (outcome != kDone) return outcome;
    for (int64_t rank = 0; rank < view.num_ranks; ++rank) {
      const uint8_t* bytes = rank == view.rank ? own + at : tray_of(view, rank, view.phase);
      if (shown(rank, at) > 0) take(rank, at, bytes, shown(rank, at));
    }
  }
  return kDone;
}

// Bytes [at, at + size) of a stream of rows -> rows that lie `stride` apart.
void place_rows(uint8_t* rows, int64_t stride, int64_t row_bytes, int64_t at, const uint8_t* bytes,
                int64_t size) {
  while (size > 0) {
    const int64_t row = at / row_bytes, inside = at % row_bytes;
    const int64_t step = std::min(size, row_bytes - inside);
    std::memcpy(rows + row * stride + inside, bytes, step);
    at += step, bytes += step, size -= step;
  }
}

}  // namespace
}  // namespace splitserve

using namespace splitserve;

// starts [num_ranks + 1]: bytes of a row before those of each rank; out [num_rows, starts[num_ranks]].
extern "C" int32_t splitserve_all_gather(RankView* view, const void* rows, int64_t num_rows,
                                         const int64_t* starts, void* out) {
  const auto width = [&](int64_t rank) { return starts[rank + 1] - starts[rank]; };
  const int64_t stride = starts[view->num_ranks];
  return pass_streams(
      *view, call_of(kGather, 0, num_rows * stride), static_cast<const uint8_t*>(rows),
      [&](int64_t rank) { return num_rows * width(rank); },
      [&](int64_t rank, int64_t at, const uint8_t* bytes, int64_t size) {
        auto* to = static_cast<uint8_t*>(out) + starts[rank];
        place_rows(to, stride, width(rank), at, bytes, size);
      });
}

// Rows of equal width, side by side at the rank `root`, which shows nothing; the others take
// nothing. The root's own columns are in `out` already where its `rows` are null.
extern "C" int32_t splitserve_gather(RankView* view, int64_t root, const void* rows,
                                     int64_t num_rows, int64_t row_bytes, void* out) {
  const auto* own = static_cast<const uint8_t*>(rows);
  const int64_t stride = view->num_ranks * row_bytes;
  const auto place = [&](int64_t rank, int64_t at, const uint8_t* bytes, int64_t size) {
    auto* to = static_cast<uint8_t*>(out) + rank * row_bytes;
    if (view->rank == root) place_rows(to, stride, row_bytes, at, bytes, size);
  };
  if (own != nullptr) place(root, 0, own, num_rows * row_bytes);
  return pass_streams(
      *view, call_of(kGather, static_cast<int32_t>(root) + 1, num_rows * stride), own,
      [&](int64_t rank) { return rank == root ? 0 : num_rows * row_bytes; }, place);
}

// Where the rows of the next call, if that is a gather for another rank, may be written: it moves
// them no more then. Null for more than a tray takes.
extern "C" void* splitserve_gather_tray(RankView* view, int64_t num_bytes) {
  if (num_bytes > view->tray_bytes) return nullptr;
  return tray_of(*view, view->rank, view->phase + 1);
}

extern "C" int32_t splitserve_broadcast(RankView* view, int64_t root, void* bytes,
                                        int64_t num_bytes) {
  auto* own = static_cast<uint8_t*>(bytes);
  return pass_streams(
      *view, call_of(kBroadcast, static_cast<int32_t>(root), num_bytes), own,
      [&](int64_t rank) { return rank == root ? num_bytes : 0; },
      [&](int64_t, int64_t at, const uint8_t* shown, int64_t size) {
        if (root != view->rank) std::memcpy(own + at, shown, size);
      });
}

// counts [num_ranks, num_ranks]: rows that each rank (first index) has for each; `rows` are this
// rank's by destination, `out` what it gets, by origin.
extern "C" int32_t splitserve_all_to_all(RankView* view, const void* rows, int64_t row_bytes,
                                         const int64_t* counts, void* out) {
  const int64_t num_ranks = view->num_ranks;
  const auto rows_of = [&](int64_t from, int64_t before) {
    int64_t sum = 0;
    for (int64_t to = 0; to < before; ++to) sum += counts[from * num_ranks + to];
    return sum;
  };
  return pass_streams(
      *view, call_of(kExchange, 0, row_bytes), static_cast<const uint8_t*>(rows),
      [&](int64_t rank) { return rows_of(rank, num_ranks) * row_bytes; },
      [&](int64_t rank, int64_t at, const uint8_t* bytes, int64_t size) {
        const int64_t first = rows_of(rank, view->rank) * row_bytes;
        const int64_t end = rows_of(rank, view->rank + 1) * row_bytes;
        const int64_t begin = std::max(at, first), stop = std::min(at + size, end);
        int64_t before = 0;
        for (int64_t from = 0; from < rank; ++from) before += counts[from * num_ranks + view->rank];
        if (begin < stop)
          std::memcpy(static_cast<uint8_t*>(out) + before * row_bytes + begin - first,
                      bytes + begin - at, stop - begin);
      });
}
