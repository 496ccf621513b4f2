// Memory that is used again and again, as large as its largest use has been.
#pragma once

#include <cstdint>
#include <memory>

namespace splitserve {

constexpr int64_t kLine = 64;  // of the cache, in bytes

class ScratchMemory {
 public:
  // At least `num_bytes`, aligned to a cache line; what was there before may be gone.
  char* fit(int64_t num_bytes) {
    if (num_bytes > capacity_) {
      memory_.reset(new char[num_bytes + kLine - 1]);
      capacity_ = num_bytes;
    }
    const auto start = reinterpret_cast<uintptr_t>(memory_.get());
    return reinterpret_cast<char*>((start + kLine - 1) / kLine * kLine);
  }

 private:
  std::unique_ptr<char[]> memory_;
  int64_t capacity_ = 0;
};

}  // namespace splitserve
