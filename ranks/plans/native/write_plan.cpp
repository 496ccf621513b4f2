// The conductor's side: one copy into the ring, and a call to the kernel only where somebody sleeps.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "plan_ring.h"

namespace splitserve {
namespace {

constexpr int64_t kLongestLookNs = 20'000'000;  // of a longer gap we were stopped ourselves

uint64_t slowest(const PlanView& view) {
  uint64_t least = view.position;
  for (int64_t rank = 1; rank < view.num_ranks; ++rank)
    least = std::min(least, reader_of(view, rank).taken.load(std::memory_order_acquire));
  return least;
}

// True once `num_bytes` more are free in the ring.
bool make_room(const PlanView& view, uint64_t num_bytes, int64_t deadline_ns) {
  int64_t waited_ns = 0, looked_ns = now_ns();
  while (view.position + num_bytes - slowest(view) > static_cast<uint64_t>(view.ring_bytes)) {
    if (writer_of(view).is_over.load() || waited_ns >= deadline_ns) return false;
    const timespec nap = {0, 50'000};
    nanosleep(&nap, nullptr);
    const int64_t now = now_ns();
    waited_ns += std::min(now - looked_ns, kLongestLookNs);
    looked_ns = now;
  }
  return true;
}

void put(PlanView& view, uint32_t kind, bool goes_on, const void* body, int64_t num_bytes) {
  uint8_t* place = place_of(view, view.position);
  const MessageHeader header = {kMessageMagic, view.generation, view.sequence++, num_bytes, kind,
                                goes_on,       {}};
  std::memcpy(place, &header, sizeof header);
  if (body != nullptr) std::memcpy(place + sizeof header, body, num_bytes);
  view.position += padded(sizeof header + num_bytes);
}

void wake(WriterLine& line) {
  line.num_sent.fetch_add(1);
  if (line.sleepers.load() > 0)
    syscall(SYS_futex, &line.num_sent, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace splitserve

using namespace splitserve;

// Readers see the body once this has returned. A body is at most a quarter of the ring.
extern "C" int32_t splitserve_write_plan(PlanView* view, uint32_t kind, int32_t goes_on,
                                         const void* body, int64_t num_bytes, int64_t deadline_ns) {
  const int64_t needed = padded(sizeof(MessageHeader) + num_bytes);
  const int64_t left = view->ring_bytes - view->position % view->ring_bytes;
  const int64_t filler = left < needed ? left : 0;
  if (!make_room(*view, needed + filler, deadline_ns)) return kLost;
  if (filler > 0) put(*view, kFiller, false, nullptr, filler - sizeof(MessageHeader));
  put(*view, kind, goes_on != 0, body, num_bytes);
  WriterLine& line = writer_of(*view);
  line.written.store(view->position, std::memory_order_release);
  wake(line);
  return kDone;
}

// Nobody waits for room, or in the ring, any more.
extern "C" void splitserve_end_plans(PlanView* view) {
  writer_of(*view).is_over.store(1);
  wake(writer_of(*view));
}
