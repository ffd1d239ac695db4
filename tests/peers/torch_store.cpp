// torch_store: runs a TorchStore, prints its port, and does what it reads, a JSON object a line, with one answer each:
// {"set": NAME, "value": TEXT}, {"get": NAME, "seconds": N}, {"add": NAME, "amount": N}, {"awaited": true}. Ends with its
// standard input. For torch_store.py.
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine_adapter/torch_store/torch_store.h"

namespace {

nlohmann::json answer(tandem::engine::TorchStore& store, const nlohmann::json& asked) try {
    using namespace tandem;
    if (asked.contains("set")) {
        store.set(asked.at("set"), asked.at("value"));
        return true;
    }
    if (asked.contains("get"))
        return store.get(asked.at("get"), Deadline::after_ms(1000 * asked.at("seconds").get<int>()));
    if (asked.contains("add")) return store.add(asked.at("add"), asked.at("amount"));
    return store.awaited();
} catch (const std::exception& error) {
    return {{"error", error.what()}};
}

}  // namespace

int main() try {
    tandem::engine::TorchStore store("127.0.0.1", 0);
    std::cout << store.port() << std::endl;
    for (std::string line; std::getline(std::cin, line);)
        std::cout << answer(store, nlohmann::json::parse(line)).dump() << std::endl;
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
}
