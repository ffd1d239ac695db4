// What a thread does around its calls of a unit's kernels: AMX's tiles are configured, then released.
#pragma once

namespace tandem::ops::detail {

struct UnitUse {
    void (*begin)() = nullptr;  // null: nothing to do
    void (*end)() = nullptr;
};

// While it lives, its thread may call the kernels, and no library that has a use for the unit itself.
class UnitInUse {
  public:
    explicit UnitInUse(const UnitUse& use) : end_(use.end) {
        if (use.begin != nullptr) use.begin();
    }
    ~UnitInUse() {
        if (end_ != nullptr) end_();
    }
    UnitInUse(const UnitInUse&) = delete;
    UnitInUse& operator=(const UnitInUse&) = delete;

  private:
    void (*end_)();
};

}  // namespace tandem::ops::detail
