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

  // How long it takes, about: reading a rank of both matrices is as much work as eight rows.
  int64_t work(int64_t in_width) const {
    return num_ranks * (in_width + part->width) * (num_rows + 8);
  }

  // Of its rows and ranks, in whole vectors.
  int64_t num_sums() const { return (num_rows * num_ranks + 15) / 16 * 16; }

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
  // place among `slots`; null: they have the same order.
  void list(const int32_t* slots, const int64_t* tokens, int64_t num_rows,
            const AdapterSite& site) {
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
  }

  const std::vector<AdapterTask>& all() const { return tasks_; }

  // One run of the tasks for each of at most `most` threads, of about as much work: where each begins,
  // and where the last one ends. Runs are read as streams, and threads that take tasks singly meet in
  // the line of the cache that they take them from. Sixteen rows of eight adapters of rank 16, the
  // matrices of SmolLM2, 2 threads, in one run: 2.1 to 2.3 ms, four runs for each 2.6, singly 2.6 to
  // 2.9. Valid until the next call.
  const std::vector<int64_t>& shares(int64_t in_width, int64_t most) {
    int64_t whole = 0, done = 0;
    for (const AdapterTask& task : tasks_) whole += task.work(in_width);
    bounds_.assign(1, 0);
    for (size_t at = 0; at < tasks_.size(); ++at) {
      done += tasks_[at].work(in_width);
      const int64_t more = at + 1 < tasks_.size() ? tasks_[at + 1].work(in_width) : 0;
      if ((2 * done + more) * most >= 2 * whole * static_cast<int64_t>(bounds_.size()))
        bounds_.push_back(static_cast<int64_t>(at) + 1);
    }
    return bounds_;
  }

 private:
  // The rows that have an adapter, those of one slot beside each other: the same for all sites of a
  // step whose rows are the same.
  void order_rows(const int32_t* slots, const int64_t* tokens, int64_t num_rows) {
    bool is_known = static_cast<int64_t>(of_row_.size()) == num_rows;
    of_row_.resize(num_rows);
    for (int64_t row = 0; row < num_rows; ++row) {
      const int32_t slot = slots[tokens == nullptr ? row : tokens[row]];
      is_known = is_known && of_row_[row] == slot;
      of_row_[row] = slot;
    }
    if (is_known) return;
    rows_.clear();
    for (int64_t row = 0; row < num_rows; ++row)
      if (of_row_[row] != 0) rows_.push_back(static_cast<int32_t>(row));
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
  std::vector<int64_t> bounds_;
};

}  // namespace splitserve
