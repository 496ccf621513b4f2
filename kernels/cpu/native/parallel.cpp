// A team whose caller never waits for a helper that has not begun.
//
// Tasks are claimed one by one. On a machine with busy neighbours a helper may be off its core for
// milliseconds; OpenMP's barrier then stalls every loop for that long, while here the caller simply
// takes the tasks itself. Measured with one busy neighbour on 2 cores, 120 loops of a decode step:
// OpenMP 928 ms, this 10 ms.
//
//   state_  epoch (32 bits) | number of tasks (16) | next task (16)
//
// A claim is a compare-and-swap of the whole word, so a helper that slept through a loop cannot take
// a task of a later one by mistake. The loop's fields stay as they are until all claimed tasks are done.
//
// Two cores that claim singly spend 0.1 us on each task, in the cache line that both write. 1536 tasks
// of 1 us: 846 us singly, 753 in runs, 755 would be half of one core's time; 96 tasks: 53 and 49.
#include "parallel.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace splitserve {
namespace {

constexpr int kMaxTasks = 0xffff;
constexpr int kRuns = 4;  // per thread, of the tasks that are left
constexpr int kSpins = 2000;  // about 50 microseconds: longer than the gap between two kernels

class Team {
 public:
  void run(int64_t count, int num_threads, Claim claim, Task task, const void* context) {
    std::unique_lock<std::mutex> alone(caller_, std::try_to_lock);
    if (num_threads <= 1 || count <= 1 || count > kMaxTasks || !alone.owns_lock()) {
      for (int64_t i = 0; i < count; ++i) task(context, i);
      return;
    }
    hire(num_threads - 1);
    task_ = task;
    context_ = context;
    shares_.store(claim == Claim::kInRuns ? kRuns * num_threads : kMaxTasks,
                  std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    const uint64_t epoch = (state_.load(std::memory_order_relaxed) >> 32) + 1;
    state_.store((epoch << 32) | (static_cast<uint64_t>(count) << 16));
    if (sleepers_.load() > 0) wake();
    work();
    for (int spins = 0; done_.load(std::memory_order_acquire) < count; ++spins)
      spins < kSpins ? _mm_pause() : static_cast<void>(sched_yield());
  }

 private:
  static bool has_task(uint64_t state) { return (state & 0xffff) < (state >> 16 & 0xffff); }

  // How many tasks to claim: an equal share of those that are left, `shares_` in all.
  uint64_t run_length(uint64_t state) const {
    const uint64_t left = (state >> 16 & 0xffff) - (state & 0xffff);
    return std::max<uint64_t>(1, left / shares_.load(std::memory_order_relaxed));
  }

  // Claims and runs tasks until none is left.
  void work() {
    uint64_t state = state_.load(std::memory_order_acquire);
    while (has_task(state)) {
      const uint64_t claimed = run_length(state);
      if (!state_.compare_exchange_weak(state, state + claimed, std::memory_order_acq_rel)) continue;
      const uint64_t first = state & 0xffff;
      for (uint64_t i = first; i < first + claimed; ++i) task_(context_, static_cast<int64_t>(i));
      done_.fetch_add(static_cast<int64_t>(claimed), std::memory_order_release);
      state = state_.load(std::memory_order_acquire);
    }
  }

  void help() {
    for (;;) {
      work();
      int spins = 0;
      while (!has_task(state_.load(std::memory_order_acquire)) && ++spins < kSpins) _mm_pause();
      if (spins >= kSpins) sleep();
    }
  }

  void sleep() {
    std::unique_lock<std::mutex> lock(sleep_);
    sleepers_.fetch_add(1);
    awake_.wait(lock, [this] { return has_task(state_.load()); });
    sleepers_.fetch_sub(1);
  }

  void wake() {
    { std::lock_guard<std::mutex> lock(sleep_); }
    awake_.notify_all();
  }

  void hire(int wanted) {
    for (; num_helpers_ < wanted; ++num_helpers_) std::thread([this] { help(); }).detach();
  }

  std::mutex caller_;
  int num_helpers_ = 0;
  Task task_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<uint64_t> shares_{1};
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::mutex sleep_;
  std::condition_variable awake_;
};

Team& team() {
  static Team* shared = new Team;  // never destroyed: helpers outlive static destructors
  return *shared;
}

}  // namespace

void run_parallel(int64_t count, int num_threads, Claim claim, Task task, const void* context) {
  team().run(count, num_threads, claim, task, context);
}

}  // namespace splitserve
