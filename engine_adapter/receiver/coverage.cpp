// Coverage: if all bytes are inside, none is there twice, and they are as many as the tensor has, then each
// is there once. "None twice" is a sweep over rectangles: rows of a tensor seen as a grid as wide as its
// transfers' stride.
#include "engine_adapter/receiver/coverage.h"

#include <algorithm>
#include <limits>
#include <map>

#include "common/error.h"
#include "common/ops/half.h"

namespace tandem::engine {
namespace {

// A plan may be cut finely, but not so that checking it costs gigabytes.
constexpr std::size_t kMaxRectangles = std::size_t{1} << 23;

struct Rectangle {
    std::uint64_t first_row, end_row;  // of the grid
    std::uint64_t left, right;         // bytes in a row
    std::uint32_t transfer;
};

[[noreturn]] void refuse(const TensorInfo& tensor, const Transfer& transfer, const std::string& why) {
    throw ProtocolError(describe(tensor, transfer) + " " + why);
}

// offset + (rows - 1)·stride + row_bytes <= size, without overflow.
bool fits(std::uint64_t offset, std::uint64_t rows, std::uint64_t stride, std::uint64_t row_bytes,
          std::uint64_t size) {
    std::uint64_t last = 0;
    std::uint64_t end = 0;
    return rows > 0 && !__builtin_mul_overflow(rows - 1, stride, &last) &&
           !__builtin_add_overflow(last, offset, &end) && !__builtin_add_overflow(end, row_bytes, &end) &&
           end <= size;
}

void check_transfer(const TensorInfo& tensor, const Transfer& t, std::span<const std::uint64_t> regions) {
    const std::uint64_t from_size = dtype_size(t.from_dtype);
    const std::uint64_t to_size = dtype_size(tensor.dtype);
    if (!ops::copy_casts(t.from_dtype, tensor.dtype)) {
        refuse(
            tensor, t,
            fmt::format("cannot be cast from {} to {}", dtype_name(t.from_dtype), dtype_name(tensor.dtype)));
    }
    std::uint64_t from_row = 0;
    std::uint64_t to_row = 0;
    if (t.rows == 0 || t.row_elements == 0 || __builtin_mul_overflow(t.row_elements, from_size, &from_row) ||
        __builtin_mul_overflow(t.row_elements, to_size, &to_row)) {
        refuse(tensor, t, fmt::format("is {} rows of {} elements", t.rows, t.row_elements));
    }
    if (!fits(t.to, t.rows, t.to_stride, to_row, tensor_bytes(tensor))) {
        refuse(tensor, t, fmt::format("is not inside the tensor's {} bytes", tensor_bytes(tensor)));
    }
    if (t.region >= regions.size()) {
        refuse(tensor, t, fmt::format("comes from region {} of {}", t.region, regions.size()));
    }
    if (!fits(t.from, t.rows, t.from_stride, from_row, regions[t.region])) {
        refuse(tensor, t,
               fmt::format("at {} is not inside the {} bytes of region {}", t.from, regions[t.region],
                           t.region));
    }
    const bool several = t.rows > 1;
    if (t.from % from_size != 0 || t.to % to_size != 0 ||
        (several && (t.from_stride % from_size != 0 || t.to_stride % to_size != 0))) {
        refuse(tensor, t, "is not aligned to its elements");
    }
    if (several && t.to_stride < to_row) refuse(tensor, t, "overlaps itself");
    if (several && t.from_stride < from_row) refuse(tensor, t, "takes rows that overlap in their region");
}

// One tensor's transfers.
class Grid {
  public:
    Grid(const TensorInfo& tensor, const std::vector<Transfer>& plan, std::span<const std::uint32_t> which)
        : tensor_(tensor), plan_(plan), size_(dtype_size(tensor.dtype)), width_(tensor_bytes(tensor)) {
        std::uint64_t covered = 0;
        for (const std::uint32_t i : which) {
            const Transfer& t = plan[i];
            if (is_strided(t)) width_ = std::min(width_, t.to_stride);
        }
        for (const std::uint32_t i : which) {
            covered += plan[i].rows * plan[i].row_elements * size_;
            add(i);
        }
        require_no_byte_twice();
        if (covered != tensor_bytes(tensor)) {
            throw ProtocolError(fmt::format("the plan covers {} of the {} bytes of tensor '{}'", covered,
                                            tensor_bytes(tensor), tensor.name));
        }
    }

  private:
    bool is_strided(const Transfer& t) const { return t.rows > 1 && t.to_stride != t.row_elements * size_; }

    void add(std::uint32_t i) {
        const Transfer& t = plan_[i];
        const std::uint64_t row = t.row_elements * size_;
        if (!is_strided(t)) return add_run(i, t.to, t.to + t.rows * row);
        const std::uint64_t left = t.to % width_;
        if (t.to_stride == width_ && left + row <= width_) {
            const std::uint64_t first = t.to / width_;
            return push({first, first + t.rows, left, left + row, i});
        }
        for (std::uint64_t r = 0; r < t.rows; ++r)
            add_run(i, t.to + r * t.to_stride, t.to + r * t.to_stride + row);
    }

    // A run of bytes is the end of one row, some whole rows, and the beginning of another.
    void add_run(std::uint32_t i, std::uint64_t begin, std::uint64_t end) {
        if (const std::uint64_t left = begin % width_; left != 0) {
            const std::uint64_t row_end = std::min(end, begin - left + width_);
            push({begin / width_, begin / width_ + 1, left, left + (row_end - begin), i});
            begin = row_end;
        }
        if (end - begin >= width_) {
            push({begin / width_, end / width_, 0, width_, i});
            begin = end / width_ * width_;
        }
        if (begin < end) push({begin / width_, begin / width_ + 1, 0, end - begin, i});
    }

    void push(const Rectangle& rectangle) {
        if (rectangles_.size() == kMaxRectangles) {
            throw ProtocolError(fmt::format("the plan cuts tensor '{}' into more than {} pieces",
                                            tensor_.name, kMaxRectangles));
        }
        rectangles_.push_back(rectangle);
    }

    // Sweeps down the rows; `open` holds the rectangles of the present row by their left edge. A rectangle
    // leaves when a later one begins at or below its end.
    void require_no_byte_twice() {
        std::sort(rectangles_.begin(), rectangles_.end(), [](const Rectangle& a, const Rectangle& b) {
            return a.first_row != b.first_row ? a.first_row < b.first_row : a.left < b.left;
        });
        std::map<std::uint64_t, const Rectangle*> open;
        for (const Rectangle& now : rectangles_) {
            // A rectangle that reaches into [now.left, now.right) is dropped if it has ended, else it
            // collides.
            auto at = open.lower_bound(now.left);
            if (at != open.begin() && std::prev(at)->second->right > now.left) --at;
            while (at != open.end() && at->first < now.right) {
                if (at->second->end_row > now.first_row) {
                    refuse(tensor_, plan_[now.transfer], "is written twice by the plan");
                }
                at = open.erase(at);
            }
            open.emplace_hint(at, now.left, &now);
        }
    }

    const TensorInfo& tensor_;
    const std::vector<Transfer>& plan_;
    const std::uint64_t size_;
    std::uint64_t width_;
    std::vector<Rectangle> rectangles_;
};

void check_buckets(const TransferPlan& plan) {
    const bool ordered = !plan.first.empty() && plan.first.front() == 0 &&
                         plan.first.back() == plan.transfers.size() &&
                         std::is_sorted(plan.first.begin(), plan.first.end());
    if (!ordered || plan.first.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
        plan.transfers.size() > std::numeric_limits<std::uint32_t>::max()) {
        throw ProtocolError(
            fmt::format("the plan's {} buckets do not follow each other through its {} transfers",
                        plan.first.size() - 1, plan.transfers.size()));
    }
}

}  // namespace

std::string describe(const TensorInfo& tensor, const Transfer& t) {
    const std::uint64_t end =
        t.to + (t.rows > 0 ? t.rows - 1 : 0) * t.to_stride + t.row_elements * dtype_size(tensor.dtype);
    return fmt::format("tensor '{}' bytes [{}, {}) from rank {}", tensor.name, t.to, end, t.source_rank);
}

void check_plan(const std::vector<TensorInfo>& tensors, std::span<const std::uint64_t> region_bytes,
                const TransferPlan& plan) {
    check_buckets(plan);
    std::vector<std::vector<std::uint32_t>> of_tensor(tensors.size());
    for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
        const Transfer& transfer = plan.transfers[i];
        if (transfer.tensor >= tensors.size()) {
            throw ProtocolError(fmt::format("tensor number {} from rank {}, the engine holds {}",
                                            transfer.tensor, transfer.source_rank, tensors.size()));
        }
        if (!plan.cores.empty() && transfer.source_rank >= plan.cores.size()) {
            throw ProtocolError(fmt::format("{}: there are cores of {} ranks",
                                            describe(tensors[transfer.tensor], transfer), plan.cores.size()));
        }
        check_transfer(tensors[transfer.tensor], transfer, region_bytes);
        of_tensor[transfer.tensor].push_back(static_cast<std::uint32_t>(i));
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) Grid(tensors[i], plan.transfers, of_tensor[i]);
}

}  // namespace tandem::engine
