// The values of a template: Python's, as far as chat templates meet them. Strings, lists, tuples and
// dictionaries are shared and do not change once made; objects (object.h) may.
#pragma once

#include <concepts>
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

#include "common/tokenizer/jinja/integer.h"

namespace tandem::tokenizer::jinja {

class Value;
class Runtime;
class Dict;
struct Object;
using List = std::vector<Value>;
using Entries = std::vector<std::pair<std::string, Value>>;  // names and values, in order
using Pairs = std::vector<std::pair<Value, Value>>;          // of a dictionary, in order of insertion

struct Arguments {
    List positional;
    Entries named;
};
using Function = std::function<Value(Runtime&, const Arguments&)>;

class Value {
  public:
    struct Undefined {
        Undefined();
        explicit Undefined(std::string why) : what(std::make_shared<const std::string>(std::move(why))) {}
        std::shared_ptr<const std::string> what;  // for messages: "'x' is undefined"
    };
    struct None {};

    Value() = default;
    Value(Undefined value) : data_(std::move(value)) {}
    Value(None value) : data_(value) {}
    Value(bool value) : data_(value) {}
    Value(Integer value) : data_(value) {}
    template <std::integral Number>
    requires(!std::same_as<Number, bool> && sizeof(Number) <= 8) Value(Number value)
        : data_(static_cast<Integer>(value)) {}
    Value(double value) : data_(value) {}
    Value(std::string value) : data_(std::make_shared<const Text>(Text{std::move(value), false})) {}
    Value(const char* value) : Value(std::string(value)) {}
    Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
    static Value markup(std::string text);  // a string that `safe` or `escape` made
    // Charge for what is beside the items, not for those. Throw Error for what is nested deeper than kDeepest or
    // heavier than kHeaviest.
    static Value list(Runtime& runtime, List items);
    static Value tuple(Runtime& runtime, List items);
    // A tuple with two named parts, as groupby makes them.
    static Value group(Runtime& runtime, Value grouper, Value list);
    static Value dict(Runtime& runtime, Dict entries);
    // Integers keep their value; a number that a double does not hold is what the parser made of it: see
    // json_reader.h.
    static Value from_json(const nlohmann::ordered_json& json);

    template <typename T>
    const T* get() const {
        return std::get_if<T>(&data_);
    }
    bool is_undefined() const { return get<Undefined>() != nullptr; }
    bool is_none() const { return get<None>() != nullptr; }
    bool is_tuple() const;
    bool is_group() const;
    bool is_markup() const;
    const std::string* string() const;
    const List* items() const;  // of a list or tuple
    const Dict* dict() const;
    const std::shared_ptr<Object>* object() const { return get<std::shared_ptr<Object>>(); }
    template <typename T>
    T* as() const {  // the object, where it is of this class
        return object() == nullptr ? nullptr : dynamic_cast<T*>(object()->get());
    }
    std::optional<Integer> integer() const;  // booleans are 0 and 1
    std::optional<double> number() const;    // the nearest
    bool is_number() const { return get<double>() != nullptr || integer().has_value(); }

    bool truthy() const;
    const char* type_name() const;  // Python's: "str", "list"

    std::size_t weight() const { return size().weight; }  // bytes, with all parts
    int depth() const { return size().depth; }
    static constexpr int kDeepest = 64;
    static constexpr std::size_t kOfString = 64;  // bytes beside the text of a string that is held by itself
    static constexpr std::size_t kHeaviest = std::size_t{32} << 20;  // bytes, shared parts counted each time

  private:
    struct Text {
        std::string text;
        bool markup = false;
    };
    enum class Kind : std::uint8_t { list, tuple, group };
    struct Sequence {
        List items;
        Kind kind = Kind::list;
        int depth = 0;
        std::size_t weight = 0;
    };
    struct Mapping;
    struct Size {
        int depth = 0;
        std::size_t weight = 0;
    };
    Size size() const;
    static void add(Size& total, const Value& part);
    static void close(Size& total);
    static Value sequence(Runtime& runtime, List items, Kind kind);
    static Value from_json(Runtime& runtime, const nlohmann::ordered_json& json, int depth);

    std::variant<Undefined, None, bool, Integer, double, std::shared_ptr<const Text>,
                 std::shared_ptr<const Sequence>, std::shared_ptr<const Mapping>, std::shared_ptr<Object>>
        data_;
};

// Python's ==, <, hash. They charge for what they look at.
bool equal(Runtime& runtime, const Value& a, const Value& b);
// nullopt: NaN, which is neither. Throws Error for what Python does not order.
std::optional<int> order(Runtime& runtime, const Value& a, const Value& b);
// Throws Error: unhashable.
std::size_t hash(Runtime& runtime, const Value& value);

}  // namespace tandem::tokenizer::jinja
