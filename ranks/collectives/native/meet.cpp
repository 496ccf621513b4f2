// Spins about 50 microseconds, longer than ranks of one step are apart; then gives its core away,
// then sleeps ever longer, up to a millisecond, until the deadline.
//
// The deadline counts from look to look, and of a long gap only a part: a rank that was stopped
// itself finds, when it goes on, that the others have been there for long.
#include "meet.h"

#include <immintrin.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace splitserve {
namespace {

constexpr int kFirstLooks = 64;  // some 3 microseconds without asking for the time
constexpr int kLooksPerTurn = 16;
constexpr int64_t kSpinNs = 50'000, kYieldNs = 1'000'000;
constexpr int64_t kLongestSleepNs = 1'000'000, kLongestLookNs = 20'000'000;

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

bool has_posted(const RankView& view, int64_t rank) {
  return line_of(view, rank).posted.load(std::memory_order_acquire) >= view.phase;
}

bool look_often(const RankView& view, int64_t rank, int num_looks) {
  for (int look = 0; look < num_looks; ++look) {
    if (has_posted(view, rank)) return true;
    _mm_pause();
  }
  return has_posted(view, rank);
}

void rest(int64_t waited_ns) {
  if (waited_ns < kSpinNs) return;
  if (waited_ns < kYieldNs) {
    sched_yield();
    return;
  }
  const timespec nap = {0, std::min(waited_ns / 16, kLongestSleepNs)};
  nanosleep(&nap, nullptr);
}

// True once the rank has posted this phase; `waited_ns` is the whole phase's.
bool wait_for(const RankView& view, int64_t rank, int64_t& waited_ns) {
  int64_t looked_ns = now_ns();
  while (!look_often(view, rank, kLooksPerTurn)) {
    if (has_lost(view) || waited_ns >= view.deadline_ns) return false;
    rest(waited_ns);
    const int64_t now = now_ns();
    if (view.beat_ns != nullptr) view.beat_ns->store(now, std::memory_order_relaxed);
    waited_ns += std::min(now - looked_ns, kLongestLookNs);
    looked_ns = now;
  }
  return true;
}

Outcome give_up(const RankView& view) {
  if (!has_lost(view))
    for (int64_t rank = 0; rank < view.num_ranks; ++rank)
      if (!has_posted(view, rank)) lost_flag(view, rank).store(1);
  return has_lost(view) ? kLost : kDone;  // the last one may have come in this moment
}

Outcome wait_for_all(RankView& view) {
  int64_t waited_ns = 0;
  Outcome outcome = kDone;
  for (int64_t rank = 0; rank < view.num_ranks && outcome == kDone; ++rank) {
    if (rank == view.rank || look_often(view, rank, kFirstLooks)) continue;
    if (!wait_for(view, rank, waited_ns)) outcome = give_up(view);
  }
  view.waited_ns += waited_ns;
  return outcome;
}

}  // namespace

Call::Call(RankView& view) : view_(view) { view.called_since_ns.store(now_ns()); }

Call::~Call() {
  view_.called_ns += now_ns() - view_.called_since_ns.load();
  view_.called_since_ns.store(0);
}

Outcome meet(RankView& view, uint64_t call) {
  if (has_lost(view)) return kLost;
  RankLine& own = line_of(view, view.rank);
  const uint64_t phase = ++view.phase;
  own.calls[phase & 1] = call;
  own.posted.store(phase, std::memory_order_release);
  const Outcome outcome = wait_for_all(view);
  if (outcome != kDone) return outcome;
  for (int64_t rank = 0; rank < view.num_ranks; ++rank)
    if (line_of(view, rank).calls[phase & 1] != call) {
      lost_flag(view, view.rank).store(1);
      return kDifferentCall;
    }
  return kDone;
}

}  // namespace splitserve

using namespace splitserve;

extern "C" int32_t splitserve_join(RankView* view) {
  uint64_t nobody = 0;
  const bool is_first = line_of(*view, view->rank)
                            .holder.compare_exchange_strong(nobody, static_cast<uint64_t>(getpid()));
  return is_first ? kDone : kTaken;
}

extern "C" int32_t splitserve_meet(RankView* view) {
  const Call in_call(*view);
  return meet(*view, call_of(kMeet, 0, 0));
}
