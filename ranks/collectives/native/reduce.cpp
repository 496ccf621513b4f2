// Sums over the ranks, in their order: all ranks get the same bits.
//
//   short vectors   every rank adds all of them: one phase
//   long ones       every rank adds its own part of all of them, then fetches the other parts: two
//
// Long ones move as many bytes between the cores as copying them in and out would, and take as long:
// 55 microseconds to 55 for 512 rows of 576 in bfloat16, 121 to 128 in float32 (the tenth percentiles
// of two ranks on a busy machine, by turns). What was tried and does not pay, in the same run: stores
// past the caches 71, lines demoted to the shared cache 87, fetched ahead by hand 160, whole vectors
// 66; pieces of 256 KiB with a phase each 55, of 64 KiB 63, of 32 KiB 115; and of float32 115 to 124.
#include <algorithm>
#include <cstring>

#include "lanes.h"
#include "meet.h"

namespace splitserve {
namespace {

constexpr int64_t kUnit = 64;  // values: parts begin at the start of a cache line

int64_t most_at_once(const RankView& view) { return std::min(view.direct_bytes, view.tray_bytes); }

struct Range {
  int64_t begin, end;
  int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

Range part_of(int64_t count, int64_t rank, int64_t num_ranks) {
  const int64_t units = (count + kUnit - 1) / kUnit;
  return {std::min(count, units * rank / num_ranks * kUnit),
          std::min(count, units * (rank + 1) / num_ranks * kUnit)};
}

Range common(Range a, Range b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

template <class Lanes>
class Reduction {
  using Value = typename Lanes::Value;

 public:
  Reduction(RankView& view, int32_t type) : view_(view), type_(type) {}

  // `rows` may lie in the tray of the coming phase, where `splitserve_tray` has said so.
  Outcome all(const Value* rows, Value* out, int64_t count) {
    if (count * kBytes <= most_at_once(view_)) return at_once(rows, out, count);
    if (rows != out) std::memcpy(out, rows, count * kBytes);
    return all_by_parts(out, count);
  }

  // starts [num_ranks + 1]: rank r gets the sum of values starts[r] to starts[r + 1].
  Outcome scatter(const Value* rows, const int64_t* starts, Value* out) {
    const Range mine = {starts[view_.rank], starts[view_.rank + 1]};
    const int64_t count = starts[view_.num_ranks], most = view_.tray_bytes / kBytes;
    Outcome outcome = kDone;
    for (int64_t at = 0; at < count && outcome == kDone; at += most) {
      const Range chunk = {at, std::min(count, at + most)}, own = common(chunk, mine);
      const Range inside = {own.begin - at, own.end - at};
      show(rows + at, chunk.size(), inside);
      outcome = meet(view_, call_of(kReduceParts, type_, count));
      if (outcome == kDone && own.size() > 0)
        add(rows + at, inside, out + own.begin - mine.begin, nullptr);
    }
    return outcome;
  }

 private:
  static constexpr int64_t kBytes = sizeof(Value);

  Outcome at_once(const Value* rows, Value* out, int64_t count) {
    Value* own = tray(view_.rank, view_.phase + 1);
    if (rows != own) std::memcpy(own, rows, count * kBytes);
    const Outcome outcome = meet(view_, call_of(kReduce, type_, count));
    if (outcome == kDone) add(rows, {0, count}, out, nullptr);
    return outcome;
  }

  Outcome all_by_parts(Value* rows, int64_t count) {
    Outcome outcome = kDone;
    const int64_t most = view_.tray_bytes / kBytes;
    for (int64_t at = 0; at < count && outcome == kDone; at += most)
      outcome = by_parts(rows + at, std::min(most, count - at));
    return outcome;
  }

  Outcome by_parts(Value* rows, int64_t count) {
    const uint64_t call = call_of(kReduce, type_, count);
    const Range own = part_of(count, view_.rank, view_.num_ranks);
    show(rows, count, own);
    Outcome outcome = meet(view_, call);
    if (outcome != kDone) return outcome;
    add(rows, own, rows + own.begin, tray(view_.rank, view_.phase + 1) + own.begin);
    outcome = meet(view_, call);
    if (outcome == kDone) fetch(rows, count);
    return outcome;
  }

  // What the other ranks add, to this rank's tray of the coming phase.
  void show(const Value* rows, int64_t count, Range own) {
    Value* to = tray(view_.rank, view_.phase + 1);
    if (own.size() == 0) own = {count, count};
    std::memcpy(to, rows, own.begin * kBytes);
    std::memcpy(to + own.end, rows + own.end, (count - own.end) * kBytes);
  }

  // Values `range` of all ranks' rows; the own ones need not be in a tray.
  void add(const Value* rows, Range range, Value* out, Value* copy) {
    const Value* parts[kMaxRanks];
    for (int64_t rank = 0; rank < view_.num_ranks; ++rank)
      parts[rank] = (rank == view_.rank ? rows : tray(rank, view_.phase)) + range.begin;
    add_ranks<Lanes>(parts, view_.num_ranks, range.size(), out, copy);
  }

  void fetch(Value* rows, int64_t count) {
    for (int64_t rank = 0; rank < view_.num_ranks; ++rank) {
      if (rank == view_.rank) continue;
      const Range part = part_of(count, rank, view_.num_ranks);
      std::memcpy(rows + part.begin, tray(rank, view_.phase) + part.begin, part.size() * kBytes);
    }
  }

  Value* tray(int64_t rank, uint64_t phase) {
    return reinterpret_cast<Value*>(tray_of(view_, rank, phase));
  }

  RankView& view_;
  const int32_t type_;
};

// Calls `work` with the reduction of that type.
template <class Work>
int32_t with_type(RankView* view, int32_t type, const Work& work) {
  const Call in_call(*view);
  switch (type) {
    case kBFloat16: return work(Reduction<BFloat16Lanes>(*view, type), uint16_t{});
    case kFloat16: return work(Reduction<Float16Lanes>(*view, type), uint16_t{});
    default: return work(Reduction<Float32Lanes>(*view, type), float{});
  }
}

}  // namespace
}  // namespace splitserve

using namespace splitserve;

// out = the sum; it may be `rows`.
extern "C" int32_t splitserve_all_reduce(RankView* view, int32_t type, const void* rows, void* out,
                                         int64_t count) {
  return with_type(view, type, [&](auto reduction, auto value) {
    using Value = decltype(value);
    return reduction.all(static_cast<const Value*>(rows), static_cast<Value*>(out), count);
  });
}

// Where the values of the next call, if that is a sum, may be written: it moves them no more then.
// Null for more than are added at once.
extern "C" void* splitserve_sum_tray(RankView* view, int64_t num_bytes) {
  if (num_bytes > most_at_once(*view)) return nullptr;
  return tray_of(*view, view->rank, view->phase + 1);
}

extern "C" int32_t splitserve_reduce_scatter(RankView* view, int32_t type, const void* rows,
                                             const int64_t* starts, void* out) {
  return with_type(view, type, [&](auto reduction, auto value) {
    using Value = decltype(value);
    return reduction.scatter(static_cast<const Value*>(rows), starts, static_cast<Value*>(out));
  });
}
