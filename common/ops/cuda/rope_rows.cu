// Rope tables on the device: one for each table and device, replaced when the host's has grown.
#include "common/ops/cuda/rope_rows.cuh"

#include <memory>

#include "common/ops/cuda/work.cuh"
#include "common/ops/rope_table.h"

namespace tandem::ops::TANDEM_KERNELS {
namespace {

// Lives as long as its rows on the host do.
struct OnDevice {
    explicit OnDevice(Stream& stream, const RopeTable::Rows& rows)
        : memory(stream, (rows.values.size() + rows.frequencies.size()) * sizeof(float)) {
        auto* const values = reinterpret_cast<float*>(memory.data());
        Work work(stream, "rope");
        work.upload(rows.values.data(), values, rows.values.size() * sizeof(float));
        work.upload(rows.frequencies.data(), values + rows.values.size(),
                    rows.frequencies.size() * sizeof(float));
        work.synchronize();  // once a table: then every stream may read it
        result.values = {memory.data(), false, rows.frequencies.size() % kVector == 0};
        result.frequencies = values + rows.values.size();
        result.factor = rows.factor;
        result.positions = rows.positions;
        result.half = static_cast<std::int64_t>(rows.frequencies.size());
    }
    DeviceMemory memory;
    RopeRows result;
};

}  // namespace

HeldRopeRows rope_rows(Stream& stream, const RopeTable& table, std::int64_t positions) {
    const std::shared_ptr<const RopeTable::Rows> rows = table.rows(positions);
    const auto there = std::static_pointer_cast<OnDevice>(rows->on_device(device_key(stream), [&] {
        return std::static_pointer_cast<void>(std::make_shared<OnDevice>(stream, *rows));
    }));
    return {there->result, there};
}

}  // namespace tandem::ops::TANDEM_KERNELS
