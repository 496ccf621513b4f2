// One phase: all ranks come, or it is known who did not.
#pragma once

#include "segment.h"

namespace splitserve {

enum Outcome : int32_t {
  kDone = 0,
  kLost = 1,           // somebody did not come, or was given up: the segment says who
  kDifferentCall = 2,  // ranks do not run the same operations: a bug of ours
  kTaken = 3,          // another process is this rank
};

enum Operation : uint64_t { kMeet, kReduce, kReduceParts, kGather, kBroadcast, kExchange };

// What all ranks must agree on before one reads what another wrote.
inline uint64_t call_of(Operation operation, int32_t type, int64_t size) {
  return static_cast<uint64_t>(operation) | static_cast<uint64_t>(type) << 8 |
         static_cast<uint64_t>(size) << 16;
}

// A call of this rank's, as long as this lives: other threads see that it is in one.
class Call {
 public:
  explicit Call(RankView& view);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  RankView& view_;
};

// Posts what this rank wrote to its tray of phase view.phase + 1, and waits for all others.
Outcome meet(RankView& view, uint64_t call);

}  // namespace splitserve
