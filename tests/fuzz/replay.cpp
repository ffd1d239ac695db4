// Runs a fuzz target without libFuzzer. REPLAY: its seeds, each file of the given folders, and a few thousand
// mutations of all of them by a fixed seed. With --write DIR: writes the seeds there, as libFuzzer's corpus.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/target.h"

namespace {

namespace fs = std::filesystem;

void run(const std::string& input) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::string mutated(std::string input, std::mt19937& random) {
    const std::size_t changes = 1 + random() % 4;
    for (std::size_t i = 0; i < changes && !input.empty(); ++i) {
        const std::size_t at = random() % input.size();
        switch (random() % 4) {
            case 0:
                input[at] = static_cast<char>(random());
                break;
            case 1:
                input.erase(at, 1 + random() % 8);
                break;
            case 2:
                input.insert(at, input.substr(random() % input.size(), random() % 32));
                break;
            default:
                input.resize(at);
        }
    }
    return input;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> inputs = fuzz_seeds();
    if (argc == 3 && std::strcmp(argv[1], "--write") == 0) {
        fs::create_directories(argv[2]);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            std::ofstream(fs::path(argv[2]) / ("seed" + std::to_string(i)), std::ios::binary) << inputs[i];
        }
        return 0;
    }
    for (int i = 1; i < argc; ++i) {
        if (!fs::exists(argv[i])) continue;  // no bug was found yet
        for (const auto& entry : fs::directory_iterator(argv[i])) {
            std::ifstream in(entry.path(), std::ios::binary);
            inputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        }
    }
    for (const std::string& input : inputs) run(input);
    std::mt19937 random(1);
    constexpr std::size_t kMutations = 4000;
    for (std::size_t i = 0; i < kMutations; ++i) run(mutated(inputs[i % inputs.size()], random));
    std::printf("%zu inputs, %zu mutations\n", inputs.size(), kMutations);
    return inputs.empty() ? 1 : 0;
}
