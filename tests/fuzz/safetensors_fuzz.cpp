// The safetensors reader: whole files, headers of the right length, and indices. What opens must be readable
// to the last byte.
//   first byte, mod 3:   0 a file   1 JSON that becomes a header before 64 bytes of data   2 an index
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "common/error.h"
#include "common/model/check_weights.h"
#include "common/model/safetensors.h"
#include "common/model/safetensors_index.h"
#include "common/model/safetensors_layout.h"
#include "tests/fuzz/target.h"

namespace {

using namespace tandem;

std::string with_length(std::string_view header, std::size_t data_bytes) {
    std::string file(8, '\0');
    const std::uint64_t length = header.size();
    std::memcpy(file.data(), &length, 8);
    return file.append(header).append(data_bytes, '\1');
}

// A file that has no name.
class MemoryFile {
  public:
    explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
        if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
            abort();
    }
    ~MemoryFile() { ::close(fd_); }
    std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

  private:
    int fd_;
};

void read_all(const std::string& file) {
    const auto files = model::Safetensors::open_file(file);
    unsigned sum = 0;
    for (const std::string& name : files.names()) {
        const Tensor tensor = files.tensor(name);
        for (std::size_t i = 0; i < tensor.bytes(); ++i) sum += static_cast<unsigned>(tensor.raw()[i]);
        if (tensor.ndim() > 0 && tensor.dim(0) > 0) {
            const Tensor row = files.rows(name, tensor.dim(0) - 1, 1);
            if (row.bytes() > 0) sum += static_cast<unsigned>(row.raw()[row.bytes() - 1]);
        }
        files.release(name);
    }
    volatile unsigned keep = sum;
    (void)keep;
    model::ModelConfig config;
    config.vocab_size = config.hidden_size = config.intermediate_size = config.head_dim = 2;
    config.num_hidden_layers = config.num_attention_heads = config.num_key_value_heads = 1;
    model::check_weights(files, config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    try {
        if (data[0] % 3 == 0) {
            read_all(MemoryFile(rest).path());
        } else if (data[0] % 3 == 1) {
            read_all(MemoryFile(with_length(rest, 64)).path());
        } else {
            model::parse_safetensors_index(rest, "index");
        }
    } catch (const ConfigError&) {
    }
    return 0;
}

std::vector<std::string> fuzz_seeds() {
    const model::SafetensorsLayout layout = model::safetensors_layout(
        {{"model.embed_tokens.weight", DType::float32, {2, 2}}, {"b", DType::bfloat16, {3}}});
    const std::string header = R"({"a":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},)"
                               R"("lm_head.weight":{"dtype":"F16","shape":[16],"data_offsets":[32,64]}})";
    return {std::string(1, '\0') + layout.head + std::string(layout.bytes - layout.head.size(), '\2'),
            std::string(1, '\1') + header, std::string(1, '\1') + header.substr(0, 57) + "}",
            "\2"
            R"({"metadata":{"total_size":8},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"};
}
