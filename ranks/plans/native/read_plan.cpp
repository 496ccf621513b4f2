// A rank's side: looks for 50 microseconds, gives its core away up to a millisecond, then sleeps
// until it is woken, a tenth of a second at a time, and stamps its beat at every look.
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "plan_ring.h"

namespace splitserve {
namespace {

constexpr int kLooksPerTurn = 16;
constexpr int64_t kSpinNs = 50'000, kYieldNs = 1'000'000, kLongestSleepNs = 100'000'000;

bool has_message(const PlanView& view) {
  return writer_of(view).written.load(std::memory_order_acquire) > view.position;
}

bool look_often(const PlanView& view) {
  for (int look = 0; look < kLooksPerTurn; ++look) {
    if (has_message(view)) return true;
    _mm_pause();
  }
  return has_message(view);
}

void sleep_until_sent(const PlanView& view, int64_t most_ns) {
  WriterLine& line = writer_of(view);
  line.sleepers.fetch_add(1);
  const uint32_t seen = line.num_sent.load();
  if (!has_message(view) && !line.is_over.load()) {
    const timespec limit = {most_ns / 1'000'000'000, most_ns % 1'000'000'000};
    syscall(SYS_futex, &line.num_sent, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
  line.sleepers.fetch_sub(1);
}

void beat(const PlanView& view, int64_t now) {
  ReaderLine& line = reader_of(view, view.rank);
  line.beat_ns.store(now, std::memory_order_relaxed);
  line.waited_ns.store(view.waited_ns, std::memory_order_relaxed);
  line.called_ns.store(view.called_ns, std::memory_order_relaxed);
  line.stepped_ns.store(view.stepped_ns, std::memory_order_relaxed);
}

PlanOutcome wait_for_message(const PlanView& view, int64_t timeout_ns) {
  const int64_t began = now_ns();
  beat(view, began);
  while (!look_often(view)) {
    const int64_t now = now_ns(), waited = now - began;
    beat(view, now);
    if (writer_of(view).is_over.load()) return kLost;
    if (waited >= timeout_ns) return kNothing;
    if (waited >= kYieldNs)
      sleep_until_sent(view, std::min(timeout_ns - waited, kLongestSleepNs));
    else if (waited >= kSpinNs)
      sched_yield();
  }
  return kDone;
}

void go_past(PlanView& view, const MessageHeader& header) {
  view.position += padded(sizeof header + header.num_bytes);
  ++view.sequence;
  reader_of(view, view.rank).taken.store(view.position, std::memory_order_release);
}

}  // namespace
}  // namespace splitserve

using namespace splitserve;

// The next message into `body`, which has room for `capacity` bytes; then its place in the ring is
// the writer's again. `kind`, `goes_on`, `num_bytes`: of the message.
extern "C" int32_t splitserve_read_plan(PlanView* view, int64_t timeout_ns, void* body,
                                        int64_t capacity, uint32_t* kind, uint32_t* goes_on,
                                        int64_t* num_bytes) {
  for (;;) {
    const PlanOutcome outcome = wait_for_message(*view, timeout_ns);
    if (outcome != kDone) return outcome;
    MessageHeader header;
    const uint8_t* place = place_of(*view, view->position);
    std::memcpy(&header, place, sizeof header);
    if (header.magic != kMessageMagic || header.generation != view->generation ||
        header.sequence != view->sequence || header.num_bytes < 0)
      return kBroken;
    if (header.kind != kFiller) {
      if (header.num_bytes > capacity) return kBroken;
      std::memcpy(body, place + sizeof header, header.num_bytes);
      *kind = header.kind, *goes_on = header.goes_on, *num_bytes = header.num_bytes;
      go_past(*view, header);
      ReaderLine& line = reader_of(*view, view->rank);
      line.num_plans.fetch_add(1, std::memory_order_relaxed);
      return kDone;
    }
    go_past(*view, header);
  }
}
