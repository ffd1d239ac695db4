// The values of a template: Python's, as far as chat templates need them. Lists and dictionaries
// are shared and do not change once made; only a namespace does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tandem::tokenizer::jinja {

class Value;
using List = std::vector<Value>;
using Entries = std::vector<std::pair<std::string, Value>>;  // in order of insertion

struct Arguments {
    List positional;
    Entries named;

    // The argument at this place or of this name; nullptr: not given.
    const Value* find(std::size_t position, std::string_view name) const;
};
using Function = std::function<Value(const Arguments&)>;

class Value {
  public:
    struct Undefined {
        std::string what;  // for messages: "'x' is undefined"
    };
    struct None {};
    struct Namespace {
        Entries entries;
    };

    Value() : data_(Undefined{"value"}) {}
    Value(Undefined value) : data_(std::move(value)) {}
    Value(None value) : data_(value) {}
    Value(bool value) : data_(value) {}
    Value(std::int64_t value) : data_(value) {}
    Value(double value) : data_(value) {}
    Value(std::string value) : data_(std::move(value)) {}
    Value(const char* value) : data_(std::string(value)) {}
    Value(Function function) : data_(std::make_shared<const Function>(std::move(function))) {}
    Value(std::shared_ptr<Namespace> space) : data_(std::move(space)) {}
    // Throw Error for what is nested deeper than kDeepest or heavier than kHeaviest.
    static Value list(List items);
    static Value dict(Entries entries);
    static Value from_json(const nlohmann::ordered_json& json, int depth = 0);

    template <typename T>
    const T* get() const {
        return std::get_if<T>(&data_);
    }
    bool is_undefined() const { return get<Undefined>() != nullptr; }
    bool is_none() const { return get<None>() != nullptr; }
    const std::string* string() const { return get<std::string>(); }
    const List* items() const;       // of a list
    const Entries* entries() const;  // of a dictionary or a namespace
    Namespace* space() const;
    const Function* function() const;
    std::optional<std::int64_t> integer() const;  // booleans are 0 and 1
    std::optional<double> number() const;
    const Value* find(std::string_view key) const;  // of entries()

    bool truthy() const;
    const char* type_name() const;  // Python's: "str", "list"
    std::string str() const;        // what {{ }} prints
    std::string repr() const;

    std::size_t weight() const { return size().weight; }  // bytes, with all parts
    static constexpr int kDeepest = 64;
    static constexpr std::size_t kHeaviest = std::size_t{32} << 20;  // bytes, shared parts counted each time

  private:
    struct ListBox {
        List items;
        int depth = 0;
        std::size_t weight = 0;
    };
    struct DictBox {
        Entries entries;
        int depth = 0;
        std::size_t weight = 0;
    };
    struct Size {
        int depth = 0;
        std::size_t weight = 0;
    };
    Size size() const;
    static void add(Size& total, const Value& part);
    static void close(Size& total);

    std::variant<Undefined, None, bool, std::int64_t, double, std::string, std::shared_ptr<const ListBox>,
                 std::shared_ptr<const DictBox>, std::shared_ptr<Namespace>, std::shared_ptr<const Function>>
        data_;
};

bool equal(const Value& a, const Value& b);
// Numbers with numbers, strings with strings; nullopt: Python does not order the two.
std::optional<int> order(const Value& a, const Value& b);
struct JsonStyle {
    int indent = -1;  // -1: all on one line
    std::string item_separator = ", ", key_separator = ": ";
    bool ensure_ascii = false;
    bool sort_keys = false;
};
std::string to_json(const Value& value, const JsonStyle& style);  // as Python's json.dumps
std::string float_repr(double value);

}  // namespace tandem::tokenizer::jinja
