#include "common/error.h"
#include "common/model/check_weights.h"
#include "common/ops/elementwise.h"
#include "common/tensor/host_access.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/own_rows.h"

namespace tandem::trainer {

void load_checkpoint(Policy& policy, const std::string& directory) {
    const auto files = model::Safetensors::open(directory);
    Stream stream = Stream::make_inline();
    HostAccess access;
    for (const auto& [name, parameter] : policy.parameters()) {
        if (files.shape(name) != parameter.shape()) {
            throw ConfigError(files.file(name), name,
                              fmt::format("has shape {}, the model needs {}", to_string(files.shape(name)),
                                          to_string(parameter.shape())));
        }
        const RowRange rows = held_rows(parameter);
        const Tensor& local = parameter.local();
        const bool here = local.device() == Device{};
        const Tensor host = here ? local : Tensor::empty(local.shape(), local.dtype(), "checkpoint");
        ops::cast(stream, files.rows(name, rows.first, rows.count), host);
        if (!here) access.write(host, local);
        files.release(name);
    }
    stream.synchronize();
    files.require_unchanged();
}

}  // namespace tandem::trainer
