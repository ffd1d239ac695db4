// A program's configuration: TOML files and `--set key=value` against a declared schema. Every key has a
// type, a default, a range or choices, and a line of help; anything else is refused with file:line and what
// is allowed (ConfigError).
//
// A schema is made over a struct: each line names a key, the field that receives its value (whose value at
// that moment is the default), what is allowed, and the help.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tandem::config {

using Texts = std::vector<std::string>;
using Field = std::variant<bool*, std::int64_t*, double*, std::string*, Texts*>;
using Value = std::variant<bool, std::int64_t, double, std::string, Texts>;

struct Key {
    std::string name;  // dotted: "mesh.dp"
    Field field;       // borrowed
    std::string help;
    Value initial;                     // the default
    double min = 0, max = 0;           // numbers, inclusive
    std::vector<std::string> choices;  // text; empty: anything
    std::string where;                 // "quickstart.toml:4", "--set", or empty for the default
};

// Keeps pointers into the struct, which must outlive it. Not thread-safe.
class Schema {
  public:
    void flag(std::string name, bool& field, std::string help);
    void integer(std::string name, std::int64_t& field, std::int64_t min, std::int64_t max, std::string help);
    void real(std::string name, double& field, double min, double max, std::string help);
    void text(std::string name, std::string& field, std::string help);
    void texts(std::string name, Texts& field, std::string help);  // ["a", "b"]
    void choice(std::string name, std::string& field, std::vector<std::string> choices, std::string help);

    // Reads a file over the values so far. Nothing is stored unless the whole file is good.
    void read_file(const std::string& path);
    void read_text(const std::string& toml, const std::string& file);
    // "mesh.dp=2". The value is TOML, and a bare word is text; a key without a section may be given where
    // only one section has it ("seed=3").
    void read_override(const std::string& assignment);

    const std::vector<Key>& keys() const { return keys_; }
    const Key& key(std::string_view name) const;  // throws ConfigError with the nearest name
    std::string where(std::string_view name) const;
    // Throws ConfigError about a key's value at the place that set it: for checks across keys.
    [[noreturn]] void refuse(std::string_view name, const std::string& message) const;

    std::string explain(std::string_view name = {}) const;       // one key, a section ("mesh"), or all
    std::string explain_json(std::string_view name = {}) const;  // the same as a JSON array
    std::string to_toml() const;  // all values in force, as a file that reads back the same

  private:
    void add(Key key);
    std::vector<const Key*> selected(std::string_view name) const;
    std::string nearest(std::string_view name) const;
    std::string unknown(std::string_view name) const;
    Key* find(std::string_view name);

    std::vector<Key> keys_;
};

// Levenshtein distance, a swap of neighbours counting as one.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace tandem::config
