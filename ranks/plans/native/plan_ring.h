// The plans of a group, as ranks/plans/segment.py makes their segment: one ring that the conductor
// writes and every other rank reads, each at its own pace.
//
//   page 0   facts (Python's alone) | the writer's line | a line per rank
//   then     ring_bytes of messages, each a header and its body, from the start of a cache line on
//
// Positions count the bytes ever written; a message never goes past the ring's end: what is left
// there is filled up. The writer waits for the slowest reader, each with a deadline.
#pragma once

#include <atomic>
#include <cstdint>

namespace splitserve {

constexpr int64_t kHeaderBytes = 4096;
constexpr int64_t kWriterAt = 128, kLinesAt = 256, kLineBytes = 128;  // neighbours come in pairs
constexpr int64_t kAlignment = 64;
constexpr uint64_t kMessageMagic = 0x4e414c5053545053;
constexpr uint32_t kFiller = 0;  // a kind of its own: nothing until the ring's end

enum PlanOutcome : int32_t {
  kDone = 0,
  kNothing = 1,  // no message within the time
  kLost = 2,     // a reader was given up, or takes nothing
  kBroken = 3,   // what lies there is no message of this generation: a bug of ours
};

struct WriterLine {
  std::atomic<uint64_t> written;   // bytes, with headers and fillers
  std::atomic<uint32_t> num_sent;  // readers sleep on it
  std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> is_over;  // the group has lost a rank
};

struct ReaderLine {
  std::atomic<uint64_t> taken;  // bytes, as `written`
  std::atomic<uint64_t> num_plans;
  std::atomic<uint64_t> beat_ns;    // when it last looked; also stamped while it waits in a collective
  std::atomic<uint64_t> waited_ns;  // for others in collectives, in all, as it says itself
  std::atomic<uint64_t> called_ns;  // in collectives, in all
  std::atomic<uint64_t> stepped_ns;  // in steps, in all
};

struct MessageHeader {
  uint64_t magic, generation, sequence;
  int64_t num_bytes;
  uint32_t kind;
  uint32_t goes_on;  // the next message has more of it
  uint64_t unused[3];
};
static_assert(sizeof(MessageHeader) == kAlignment, "a header fills a cache line");

// One process's view; Python has the same record (native_calls.py).
struct PlanView {
  uint8_t* segment;
  int64_t rank, num_ranks, ring_bytes;
  uint64_t generation;
  uint64_t position, sequence;  // of the next message
  uint64_t waited_ns, called_ns, stepped_ns;  // a reader's, to be told
};

inline WriterLine& writer_of(const PlanView& view) {
  return *reinterpret_cast<WriterLine*>(view.segment + kWriterAt);
}

inline ReaderLine& reader_of(const PlanView& view, int64_t rank) {
  return *reinterpret_cast<ReaderLine*>(view.segment + kLinesAt + rank * kLineBytes);
}

inline uint8_t* place_of(const PlanView& view, uint64_t position) {
  return view.segment + kHeaderBytes + position % view.ring_bytes;
}

inline int64_t padded(int64_t num_bytes) {
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t now_ns();

}  // namespace splitserve
