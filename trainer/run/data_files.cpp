#include "trainer/run/data_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/error.h"
#include "common/identity/host_identity.h"
#include "common/json_text.h"
#include "trainer/checkpoint/hash.h"

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;

constexpr const char* kVariable = "TANDEM_DATA_COPIES";
constexpr std::size_t kMarks = 64;

using KeyedFile = std::pair<const char*, std::string>;

std::vector<KeyedFile> data_files(const RunConfig& c) {
    std::vector<KeyedFile> files;
    if (!c.data.prompts.empty()) files.emplace_back("data.prompts", c.data.prompts);
    if (!c.data.held_out_file.empty()) files.emplace_back("data.held_out_file", c.data.held_out_file);
    return files;
}

// --- content

ConstSpan bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string digest_of(std::string_view text) {
    return to_hex(ops::checksum(bytes_of(text)));
}

std::size_t count_lines(std::string_view text) {
    const auto ends = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    return ends + (text.empty() || text.back() == '\n' ? 0 : 1);
}

// After so many lines the file's first `bytes` bytes have this checksum.
struct Mark {
    std::size_t lines = 0, bytes = 0;
    std::string digest;
};

std::vector<Mark> marks_of(std::string_view text) {
    const std::size_t every = std::max<std::size_t>((count_lines(text) + kMarks - 1) / kMarks, 1);
    std::vector<Mark> marks;
    Hash hash;
    std::size_t line = 0, hashed = 0;
    for (std::size_t at = 0; at < text.size();) {
        at = std::min(text.find('\n', at), text.size() - 1) + 1;
        if (++line % every != 0 && at < text.size()) continue;
        hash.add(bytes_of(text.substr(hashed, at - hashed)));
        hashed = at;
        marks.push_back({line, at, to_hex(hash.value())});
    }
    return marks;
}

ordered_json content_of(const std::string& file) {
    const std::string_view text = FileCopy::of(file)->text();
    auto marks = ordered_json::array();
    for (const Mark& mark : marks_of(text)) marks.push_back({mark.lines, mark.bytes, mark.digest});
    return {{"path", file},
            {"bytes", text.size()},
            {"lines", count_lines(text)},
            {"xxh3_128", digest_of(text)},
            {"marks", marks.dump()}};  // on one line
}

std::string lines_from_to(std::size_t first, std::size_t last) {
    return first == last ? fmt::format("line {}", first) : fmt::format("lines {} to {}", first, last);
}

// How far the earlier file and this text are the same.
std::string where_they_differ(const ordered_json& then, std::string_view now) {
    std::size_t same = 0, hashed = 0;
    Hash hash;
    for (const auto& mark : parse_ordered_json_text(then.at("marks").get<std::string>())) {
        const auto lines = mark.at(0).get<std::size_t>(), bytes = mark.at(1).get<std::size_t>();
        if (bytes > now.size()) {
            return fmt::format("it ends, or differs first, in {}", lines_from_to(same + 1, lines));
        }
        hash.add(bytes_of(now.substr(hashed, bytes - hashed)));
        hashed = bytes;
        if (to_hex(hash.value()) != mark.at(2).get<std::string>())
            return fmt::format("the first difference is in {}", lines_from_to(same + 1, lines));
        same = lines;
    }
    return fmt::format("its first {} lines are the same, and more follow", same);
}

// --- sharing

// What a rank tells the others of its files.
struct Announcement {
    std::array<std::array<char, 48>, 2> paths{};
    std::array<ops::Checksum, 2> checksums{};
    std::uint64_t host = 0;
    std::uint64_t has = 0;  // 1: it has read them
};

std::vector<Announcement> gather(comm::Communicator& world, const Announcement& own) {
    std::vector<Announcement> all(static_cast<std::size_t>(world.size()));
    world.all_gather({reinterpret_cast<const std::byte*>(&own), sizeof(own)},
                     {reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(own)});
    return all;
}

}  // namespace

DataFiles::DataFiles(const RunConfig& config) {
    for (const auto& [key, file] : data_files(config)) copies_.push_back(FileCopy::of(file));
}

DataFiles DataFiles::of_parent(const RunConfig& config) {
    const char* given = std::getenv(kVariable);
    if (given == nullptr) return DataFiles(config);
    DataFiles files;
    std::string_view rest = given;
    for (const auto& [key, file] : data_files(config)) {
        const std::size_t end = std::min(rest.find(' '), rest.size());
        files.copies_.push_back(FileCopy::shared(file, std::string(rest.substr(0, end))));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return files;
}

std::vector<std::string> DataFiles::environment() const {
    std::string value;
    for (const auto& copy : copies_) value += (value.empty() ? "" : " ") + copy->announced();
    if (value.empty()) return {};
    return {fmt::format("{}={}", kVariable, value)};
}

DataFiles DataFiles::of_host(const RunConfig& config, comm::Communicator& world) {
    const auto files = data_files(config);
    const auto rank = static_cast<std::size_t>(world.rank());
    Announcement own;
    own.host = std::hash<std::string>()(host_identity());
    std::vector<Announcement> all = gather(world, own);
    const auto same_host = [&](const Announcement& other) { return other.host == own.host; };
    const auto reader =
        static_cast<std::size_t>(std::find_if(all.begin(), all.end(), same_host) - all.begin());

    DataFiles result;
    std::exception_ptr failure;
    if (rank == reader) {
        try {
            result = DataFiles(config);
            own.has = 1;
            for (std::size_t i = 0; i < files.size(); ++i) {
                const auto& copy = result.copies_[i];
                copy->announced().copy(own.paths[i].data(), own.paths[i].size() - 1);
                own.checksums[i] = ops::checksum(bytes_of(copy->text()));
            }
        } catch (...) {
            failure = std::current_exception();  // the others of this host will find the same
        }
    }
    all = gather(world, own);
    if (failure) std::rethrow_exception(failure);
    if (rank != reader) {
        if (all[reader].has == 0) return DataFiles(config);
        for (std::size_t i = 0; i < files.size(); ++i)
            result.copies_.push_back(FileCopy::shared(files[i].second, all[reader].paths[i].data()));
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
        for (std::size_t other = 0; other < all.size(); ++other) {
            if (all[other].has == 0 || all[other].checksums[i] == all[reader].checksums[i]) continue;
            throw ConfigError(
                files[i].second, files[i].first,
                fmt::format("has another content on the host of rank {} than on that of rank {}: XXH3-128 "
                            "{} and {}",
                            other, rank, to_hex(all[other].checksums[i]), to_hex(all[reader].checksums[i])));
        }
    }
    world.barrier();  // every copy is open
    return result;
}

ordered_json data_digests(const RunConfig& config) {
    auto digests = ordered_json::object();
    for (const auto& [key, file] : data_files(config)) digests[key] = content_of(file);
    return digests;
}

std::vector<std::string> data_differences(const ordered_json& then, const RunConfig& now) {
    std::vector<std::string> differences;
    for (const auto& [key, file] : data_files(now)) {
        if (!then.contains(key)) {
            differences.push_back(fmt::format("{}: there was none, now it is '{}'", key, file));
            continue;
        }
        const ordered_json& before = then.at(key);
        const std::string_view text = FileCopy::of(file)->text();
        const std::string digest = digest_of(text);
        if (before.at("xxh3_128") == digest) continue;
        differences.push_back(
            fmt::format("{}: '{}' had {} bytes in {} lines (XXH3-128 {}), '{}' has {} in {} ({}): {}", key,
                        before.at("path").get<std::string>(), before.at("bytes").dump(),
                        before.at("lines").dump(), before.at("xxh3_128").get<std::string>(), file,
                        text.size(), count_lines(text), digest, where_they_differ(before, text)));
    }
    for (const auto& [key, before] : then.items()) {
        const auto files = data_files(now);
        const bool there = std::any_of(files.begin(), files.end(),
                                       [&, &key = key](const KeyedFile& f) { return f.first == key; });
        if (!there)
            differences.push_back(
                fmt::format("{}: it was '{}', now there is none", key, before.at("path").get<std::string>()));
    }
    return differences;
}

}  // namespace tandem::trainer
