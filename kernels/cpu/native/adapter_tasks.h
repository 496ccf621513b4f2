// What adapters have to do beside a product, in tasks: some rows of one slot, at one part of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace splitserve {

// Mirrored in kernels/cpu/adapter_records.py.
struct AdapterPart {
  const void* down;
  const void* up;
  const int32_t* ranks;  // [num_slots]
  int64_t first_column, width;
};

struct AdapterSite {
  const AdapterPart* parts;
  int64_t num_parts;
  const int32_t* starts;  // [num_slots]
};

struct AdapterTask {
  const int32_t* rows;
  int64_t num_rows;
  const AdapterPart* part;
  int64_t first_rank, num_ranks;

  // The task's run of a matrix with so many bytes a rank.
  const char* run_of(const void* matrix, int64_t rank_bytes) const {
    return static_cast<const char*>(matrix) + first_rank * rank_bytes;
  }
};

// Kept between steps by each thread that lists some.
class AdapterTasks {
 public:
  static constexpr int64_t kMostRows = 8;  // of a task

  // Part after part, the widest products first, and of each slot after slot, as runs lie in memory:
  // many rows of one slot pass while its run is in the first-level cache. `tokens`: of each row its
  // place among `slots`; null: they have the same order. Valid until the next call.
  const std::vector<AdapterTask>& list(const int32_t* slots, const int64_t* tokens,
                                       int64_t num_rows, const AdapterSite& site) {
    order_rows(slots, tokens, num_rows);
    tasks_.clear();
    for (int64_t part = 0; part < site.num_parts; ++part)
      for (size_t first = 0, end; first < rows_.size(); first = end) {
        const int32_t slot = of_row_[rows_[first]];
        for (end = first + 1; end < rows_.size() && of_row_[rows_[end]] == slot;) ++end;
        const int64_t num_ranks = site.parts[part].ranks[slot];
        if (num_ranks > 0)
          add(rows_.data() + first, static_cast<int64_t>(end - first), site.parts + part,
              site.starts[slot], num_ranks);
      }
    return tasks_;
  }

 private:
  // The rows that have an adapter, those of one slot beside each other.
  void order_rows(const int32_t* slots, const int64_t* tokens, int64_t num_rows) {
    of_row_.resize(num_rows);
    rows_.clear();
    for (int64_t row = 0; row < num_rows; ++row) {
      of_row_[row] = slots[tokens == nullptr ? row : tokens[row]];
      if (of_row_[row] != 0) rows_.push_back(static_cast<int32_t>(row));
    }
    const auto is_before = [&](int32_t a, int32_t b) {
      return of_row_[a] != of_row_[b] ? of_row_[a] < of_row_[b] : a < b;
    };
    if (!std::is_sorted(rows_.begin(), rows_.end(), is_before))
      std::sort(rows_.begin(), rows_.end(), is_before);
  }

  void add(const int32_t* rows, int64_t num_rows, const AdapterPart* part, int64_t first_rank,
           int64_t num_ranks) {
    const int64_t count = (num_rows - 1) / kMostRows + 1;
    for (int64_t block = 0; block < count; ++block) {
      const int64_t first = num_rows * block / count, end = num_rows * (block + 1) / count;
      tasks_.push_back({rows + first, end - first, part, first_rank, num_ranks});
    }
  }

  std::vector<int32_t> of_row_, rows_;
  std::vector<AdapterTask> tasks_;
};

}  // namespace splitserve
