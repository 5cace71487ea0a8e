// Checks a value of the document against a schema.
#include <algorithm>

#include "expander.hpp"

namespace aici::json_schema {
namespace {

constexpr std::uint32_t kMaxDepth = 40;
constexpr std::uint32_t kDigits = 1000;

bool equal_within(const Document& document, Value a, Value b, std::uint32_t depth) {
  using Kind = Document::Kind;
  if (document.kind(a) != document.kind(b) || depth == 0) return false;
  switch (document.kind(a)) {
    case Kind::kNumber: {
      if (document.text(a) == document.text(b)) return true;
      const auto x = Decimal::of(document.text(a), kDigits), y = Decimal::of(document.text(b), kDigits);
      return x && y && *x == *y;
    }
    case Kind::kString: return document.text(a) == document.text(b);
    case Kind::kArray:
    case Kind::kObject:
      if (document.count(a) != document.count(b)) return false;
      for (std::uint32_t i = 0; i < document.count(a); i++) {
        const Value x = document.child(a, i);
        const Value y = document.kind(a) == Kind::kArray ? document.child(b, i) : document.find(b, document.name(x));
        if (y == kNone || !equal_within(document, x, y, depth - 1)) return false;
      }
      return true;
    default: return true;
  }
}

}  // namespace

bool equal(const Document& document, Value a, Value b) { return equal_within(document, a, b, 100); }

std::uint32_t ValueSet::hash(Value value, std::uint32_t depth) const {
  using Kind = Document::Kind;
  Hasher hasher;
  std::uint32_t members = 0;
  const auto add_text = [&](std::string_view text) {
    for (const char c : text) hasher.add(static_cast<unsigned char>(c));
  };
  hasher.add(static_cast<std::uint32_t>(document_.kind(value)));
  switch (document_.kind(value)) {
    case Kind::kNumber:
      if (const auto number = Decimal::of(document_.text(value), kDigits)) add_text(number->plain());
      break;
    case Kind::kString: add_text(document_.text(value)); break;
    case Kind::kArray:
    case Kind::kObject:
      hasher.add(document_.count(value));
      for (std::uint32_t i = 0; i < document_.count(value) && depth > 0; i++) {
        // members of an object may be in any order
        const Value child = document_.child(value, i);
        const std::uint32_t inside = hash(child, depth - 1);
        if (document_.kind(value) == Kind::kArray)
          hasher.add(inside);
        else
          members += inside;
      }
      hasher.add(members);
      break;
    default: break;
  }
  return hasher.bits();
}

bool ValueSet::contains(Value value) const {
  return index_.find(hash(value, 2), [&](Value other) { return equal(document_, value, other); }) != HashIndex::kNone;
}

bool ValueSet::add(Value value) {
  if (contains(value)) return false;
  index_.insert(hash(value, 2), value);
  return true;
}

Validator::Answer Validator::both(Answer a, Answer b) {
  if (a == Answer::kNo || b == Answer::kNo) return Answer::kNo;
  return a == Answer::kYes ? b : a;
}

Validator::Answer Validator::negate(Answer a) {
  return a == Answer::kUnknown ? a : a == Answer::kYes ? Answer::kNo : Answer::kYes;
}

std::optional<bool> Validator::meets(Value value, const Goal& goal) {
  Answer all = Answer::kYes;
  for (const Atom atom : goal) {
    if (atom == kNever) return false;
    const Value schema = schema_of(atom);
    const Answer one = is_value(atom) ? of(equal(document_, value, schema)) : meets(value, schema);
    all = both(all, is_negated(atom) ? negate(one) : one);
  }
  return all == Answer::kUnknown ? std::nullopt : std::optional(all == Answer::kYes);
}

Validator::Answer Validator::meets(Value value, Value schema) {
  if (!document_.is(schema, Kind::kObject)) return of(document_.is(schema, Kind::kTrue));
  if (depth_ == kMaxDepth) return Answer::kUnknown;
  depth_++;
  Answer all = Answer::kYes;
  const bool alone = schemas_.draft(schema) <= Draft::k7 && document_.find(schema, "$ref") != kNone;
  for (std::uint32_t i = 0; i < document_.count(schema) && all != Answer::kNo; i++) {
    const Value keyword = document_.child(schema, i);
    const std::string_view name = document_.name(keyword);
    if (alone && name != "$ref") continue;
    all = both(all, logic(value, schema, keyword, name));
    if (document_.is(value, Kind::kArray))
      all = both(all, array(value, schema, keyword, name));
    else if (document_.is(value, Kind::kObject))
      all = both(all, object(value, schema, keyword, name));
    else
      all = both(all, scalar(value, keyword, name, schema));
  }
  depth_--;
  return all;
}

Validator::Answer Validator::has_type(Value value, std::string_view type) const {
  switch (document_.kind(value)) {
    case Kind::kNull: return of(type == "null");
    case Kind::kFalse:
    case Kind::kTrue: return of(type == "boolean");
    case Kind::kString: return of(type == "string");
    case Kind::kArray: return of(type == "array");
    case Kind::kObject: return of(type == "object");
    case Kind::kNumber: break;
  }
  if (type != "integer") return of(type == "number");
  const std::optional<Decimal> number = Decimal::of(document_.text(value), limits_.number_digits);
  return number ? of(number->integral()) : Answer::kUnknown;
}

Validator::Answer Validator::logic(Value value, Value schema, Value keyword, std::string_view name) {
  if (name == "$ref" || name == "$dynamicRef" || name == "$recursiveRef") {
    std::string problem;
    std::uint32_t ambiguous = kNone;
    if (!document_.is(keyword, Kind::kString)) return Answer::kUnknown;
    const Value target = name == "$ref" ? schemas_.resolve(schema, document_.text(keyword), &problem)
                                        : schemas_.resolve_dynamic(schema, document_.text(keyword), &ambiguous, &problem);
    return target == kNone || ambiguous != kNone ? Answer::kUnknown : meets(value, target);
  }
  if (name == "type") {
    if (!document_.is(keyword, Kind::kArray)) return has_type(value, document_.text(keyword));
    for (std::uint32_t i = 0; i < document_.count(keyword); i++)
      if (const Answer one = has_type(value, document_.text(document_.child(keyword, i))); one != Answer::kNo)
        return one;
    return Answer::kNo;
  }
  if (name == "const") return schemas_.draft(schema) < Draft::k6 ? Answer::kYes : of(equal(document_, value, keyword));
  if (name == "not") return negate(meets(value, keyword));
  if (name == "if") {
    const Answer test = meets(value, keyword);
    const Value next = document_.find(schema, test == Answer::kYes ? "then" : "else");
    if (test == Answer::kUnknown) return test;
    return next == kNone ? Answer::kYes : meets(value, next);
  }
  const bool listed = document_.is(keyword, Kind::kArray);
  if (name == "enum" && listed) {
    if (document_.parent(value) == keyword) return Answer::kYes;
    for (std::uint32_t i = 0; i < document_.count(keyword); i++)
      if (equal(document_, value, document_.child(keyword, i))) return Answer::kYes;
    return Answer::kNo;
  }
  if (!listed || (name != "allOf" && name != "anyOf" && name != "oneOf")) return Answer::kYes;
  std::uint32_t yes = 0, unknown = 0;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    const Answer one = meets(value, document_.child(keyword, i));
    yes += one == Answer::kYes, unknown += one == Answer::kUnknown;
  }
  if (name == "allOf" && unknown + yes < document_.count(keyword)) return Answer::kNo;
  if (name == "allOf") return unknown ? Answer::kUnknown : Answer::kYes;
  if (name == "anyOf") return yes ? Answer::kYes : unknown ? Answer::kUnknown : Answer::kNo;
  return yes > 1 ? Answer::kNo : unknown ? Answer::kUnknown : of(yes == 1);
}

Validator::Answer Validator::scalar(Value value, Value keyword, std::string_view name, Value schema) {
  if (document_.is(value, Kind::kString)) {
    if (name == "pattern" || name == "format") {
      if (!document_.is(keyword, Kind::kString)) return Answer::kUnknown;
      const bool format = name == "format";
      const std::string_view pattern = document_.text(keyword), text = document_.text(value);
      const auto match = strings_.matches(pattern, format, text);
      // between the texts that are allowed and those that are not of the format may be others
      if (!match || (!*match && format && strings_.matches(pattern, format, text, true).value_or(true)))
        return Answer::kUnknown;
      return of(*match);
    }
    if (name != "minLength" && name != "maxLength") return Answer::kYes;
    if (!document_.is(keyword, Kind::kNumber)) return Answer::kUnknown;
    const auto bound = Decimal::of(document_.text(keyword), limits_.number_digits);
    if (!bound) return Answer::kUnknown;
    const int order = compare(Decimal::of(length(document_.text(value))), *bound);
    return of(name == "minLength" ? order >= 0 : order <= 0);
  }
  if (!document_.is(value, Kind::kNumber)) return Answer::kYes;
  const auto number = Decimal::of(document_.text(value), limits_.number_digits);
  if (name == "format" && document_.is(keyword, Kind::kString)) {
    const Format* format = find_format(document_.text(keyword));
    if (!format || !format->of_integers()) return Answer::kYes;
    if (!number) return Answer::kUnknown;
    return of(number->integral() && compare(*number, *Decimal::of(format->low, limits_.number_digits)) >= 0 &&
              compare(*number, *Decimal::of(format->high, limits_.number_digits)) <= 0);
  }
  if (!document_.is(keyword, Kind::kNumber)) return Answer::kYes;
  const auto bound = Decimal::of(document_.text(keyword), limits_.number_digits);
  if (!number || !bound) return Answer::kUnknown;
  const int order = compare(*number, *bound);
  // the form of draft 4
  const bool above = document_.is(document_.find(schema, "exclusiveMinimum"), Kind::kTrue);
  const bool below = document_.is(document_.find(schema, "exclusiveMaximum"), Kind::kTrue);
  if (name == "minimum") return of(above ? order > 0 : order >= 0);
  if (name == "maximum") return of(below ? order < 0 : order <= 0);
  if (name == "exclusiveMinimum") return of(order > 0);
  if (name == "exclusiveMaximum") return of(order < 0);
  if (name == "multipleOf")
    return bound->zero() || bound->negative ? Answer::kUnknown : of(is_multiple(*number, *bound));
  return Answer::kYes;
}

Validator::Answer Validator::array(Value value, Value schema, Value keyword, std::string_view name) {
  const std::uint32_t size = document_.count(value);
  const bool old = schemas_.draft(schema) < Draft::k2020;
  if (name == "minItems" || name == "maxItems") {
    const auto bound = Decimal::of(document_.text(keyword), limits_.number_digits);
    if (!bound) return Answer::kUnknown;
    const int order = compare(Decimal::of(size), *bound);
    return of(name == "minItems" ? order >= 0 : order <= 0);
  }
  if (name == "uniqueItems") {
    for (std::uint32_t i = 0; i < size && document_.is(keyword, Kind::kTrue); i++)
      for (std::uint32_t j = 0; j < i; j++)
        if (equal(document_, document_.child(value, i), document_.child(value, j))) return Answer::kNo;
    return Answer::kYes;
  }
  if (name == "contains" || name == "unevaluatedItems")
    return schemas_.draft(schema) < Draft::k6 ? Answer::kYes : Answer::kUnknown;
  Answer all = Answer::kYes;
  if (document_.is(keyword, Kind::kArray)) {
    if (old ? name == "items" : name == "prefixItems")
      for (std::uint32_t i = 0; i < std::min(size, document_.count(keyword)); i++)
        all = both(all, meets(document_.child(value, i), document_.child(keyword, i)));
    return all;
  }
  const Value prefix = document_.find(schema, old ? "items" : "prefixItems");
  std::uint32_t from = document_.is(prefix, Kind::kArray) ? document_.count(prefix) : 0;
  if (name == "additionalItems" && !(old && document_.is(prefix, Kind::kArray))) from = size;
  if (name != "items" && name != "additionalItems") from = size;
  for (std::uint32_t i = from; i < size; i++) all = both(all, meets(document_.child(value, i), keyword));
  return all;
}

/// Returns whether additionalProperties ignores this name, since other keywords describe it.
Validator::Answer Validator::known_property(Value schema, std::string_view name) {
  if (document_.find(document_.find(schema, "properties"), name) != kNone) return Answer::kYes;
  const Value patterns = document_.find(schema, "patternProperties");
  for (std::uint32_t k = 0; document_.is(patterns, Kind::kObject) && k < document_.count(patterns); k++) {
    const auto match = strings_.matches(document_.name(document_.child(patterns, k)), false, name);
    if (!match) return Answer::kUnknown;
    if (*match) return Answer::kYes;
  }
  return Answer::kNo;
}

Validator::Answer Validator::object(Value value, Value schema, Value keyword, std::string_view name) {
  const std::uint32_t size = document_.count(value);
  Answer all = Answer::kYes;
  if (name == "minProperties" || name == "maxProperties") {
    const auto bound = Decimal::of(document_.text(keyword), limits_.number_digits);
    if (!bound) return Answer::kUnknown;
    const int order = compare(Decimal::of(size), *bound);
    return of(name == "minProperties" ? order >= 0 : order <= 0);
  }
  const auto require = [&](Value list) {
    for (std::uint32_t i = 0; document_.is(list, Kind::kArray) && i < document_.count(list); i++)
      if (document_.find(value, document_.text(document_.child(list, i))) == kNone) all = Answer::kNo;
  };
  if (name == "required") {
    require(keyword);
  } else if (name == "properties") {
    for (std::uint32_t i = 0; i < size; i++)
      if (const Value one = document_.find(keyword, document_.name(document_.child(value, i))); one != kNone)
        all = both(all, meets(document_.child(value, i), one));
  } else if (name == "patternProperties") {
    for (std::uint32_t i = 0; i < size; i++)
      for (std::uint32_t k = 0; document_.is(keyword, Kind::kObject) && k < document_.count(keyword); k++) {
        const Value one = document_.child(keyword, k);
        const auto match = strings_.matches(document_.name(one), false, document_.name(document_.child(value, i)));
        if (match && !*match) continue;
        const Answer inside = meets(document_.child(value, i), one);
        all = both(all, match || inside == Answer::kYes ? inside : Answer::kUnknown);
      }
  } else if (name == "additionalProperties") {
    all = additional(value, schema, keyword);
  } else if (name == "dependentRequired" || name == "dependentSchemas" || name == "dependencies") {
    for (std::uint32_t k = 0; document_.is(keyword, Kind::kObject) && k < document_.count(keyword); k++) {
      const Value one = document_.child(keyword, k);
      if (document_.find(value, document_.name(one)) == kNone) continue;
      if (document_.is(one, Kind::kArray))
        require(one);
      else
        all = both(all, meets(value, one));
    }
  } else if (name == "propertyNames" && schemas_.draft(schema) >= Draft::k6) {
    for (std::uint32_t i = 0; i < size; i++)
      all = both(all, meets(document_.name_value(document_.child(value, i)), keyword));
  } else if (name == "unevaluatedProperties" && size > 0) {
    return Answer::kUnknown;
  }
  return all;
}

Validator::Answer Validator::additional(Value value, Value schema, Value keyword) {
  Answer all = Answer::kYes;
  for (std::uint32_t i = 0; i < document_.count(value); i++) {
    const Value property = document_.child(value, i);
    const Answer known = known_property(schema, document_.name(property));
    if (known == Answer::kYes) continue;
    const Answer inside = meets(property, keyword);
    all = both(all, known == Answer::kNo || inside == Answer::kYes ? inside : Answer::kUnknown);
  }
  return all;
}

}  // namespace aici::json_schema
