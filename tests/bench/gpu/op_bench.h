// The rig of ops_gpu_bench: measures calls on a stream, and tells what came of them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/device/devices.h"
#include "common/device/stream.h"
#include "common/tensor/tensor.h"

namespace tandem {

struct Row {
    std::string name;
    double bytes = 0.0;  // read and written
    double flops = 0.0;
    bool barred = true;  // of those bound by memory: whether the bar is for this one
    std::vector<double> seconds;

    double median() const;
};

class OpBench {
  public:
    explicit OpBench(Device device) : stream_(Stream::make_compute(device)) {}

    Stream& stream() { return stream_; }
    Tensor random(Shape shape, DType dtype);
    Tensor zeros(Shape shape, DType dtype);

    // Seven runs of as many calls as take about 20 ms.
    Row& add(std::string name, double bytes, double flops, const std::function<void()>& work);
    void add_copy(std::int64_t elements);  // of float32
    const std::vector<Row>& rows() const { return rows_; }

  private:
    double time(const std::function<void()>& work, int calls);

    Stream stream_;
    std::vector<Row> rows_;
    int seed_ = 0;
};

// Prints the table and returns the same as JSON: each row beside the better copy (the bar is 85% of it) or the
// best product.
nlohmann::json report(const DeviceInfo& info, const std::vector<Row>& rows);

}  // namespace tandem
