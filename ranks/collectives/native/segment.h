// The shared segment of a group, as ranks/collectives/segment.py makes it, and one rank's view of it.
//
//   page 0   facts (Python's alone) | lost: a byte per rank | a line per rank: posted, calls, holder
//   then     trays: [rank][parity of the phase][tray_bytes]
//
// A call is one phase or several. In a phase a rank writes its own tray of that parity, posts the
// phase, waits until all others have posted it, and reads theirs. It writes the same tray again two
// phases later: by then all have posted the phase between, so nobody reads the tray any more.
#pragma once

#include <atomic>
#include <cstdint>

namespace splitserve {

constexpr int64_t kMaxRanks = 16;
constexpr int64_t kHeaderBytes = 4096;
constexpr int64_t kLostAt = 128, kLinesAt = 256, kLineBytes = 128;  // neighbours are fetched in pairs

struct RankLine {
  std::atomic<uint64_t> posted;  // the phase whose tray is written
  uint64_t calls[2];  // what the rank does in it, by parity; written before `posted`
  std::atomic<uint64_t> holder;  // process id; 0: nobody yet
};

// One rank of one process; Python has the same record (native_calls.py).
struct RankView {
  uint8_t* segment;
  int64_t rank, num_ranks, tray_bytes;
  int64_t direct_bytes;  // up to here a sum is made of all vectors at once by every rank
  int64_t deadline_ns;   // of one phase
  uint64_t phase;        // the last one posted
  int64_t waited_ns;     // for others, in all
  std::atomic<uint64_t>* beat_ns;  // null, or what is stamped while this rank waits: it lives
  std::atomic<int64_t> called_since_ns;  // when the call began that it is in; 0: it is in none
  int64_t called_ns;                     // in calls, in all, with the waits
};

inline RankLine& line_of(const RankView& view, int64_t rank) {
  return *reinterpret_cast<RankLine*>(view.segment + kLinesAt + rank * kLineBytes);
}

inline std::atomic<uint8_t>& lost_flag(const RankView& view, int64_t rank) {
  return *reinterpret_cast<std::atomic<uint8_t>*>(view.segment + kLostAt + rank);
}

inline bool has_lost(const RankView& view) {
  const auto* words = reinterpret_cast<const std::atomic<uint64_t>*>(view.segment + kLostAt);
  return (words[0].load(std::memory_order_relaxed) | words[1].load(std::memory_order_relaxed)) != 0;
}

inline uint8_t* tray_of(const RankView& view, int64_t rank, uint64_t phase) {
  const int64_t index = 2 * rank + static_cast<int64_t>(phase & 1);
  return view.segment + kHeaderBytes + index * view.tray_bytes;
}

}  // namespace splitserve
